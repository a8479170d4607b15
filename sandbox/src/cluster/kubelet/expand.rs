//! `$(NAME)` in the values of `env`, in `command` and in `args`, as Kubernetes expands it.

/// Replaces each `$(NAME)` that `lookup` knows; others stay as they are. `$$` is a dollar sign.
pub(super) fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|name| name.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(&value),
                None => out.extend(["$(", name, ")"]),
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_are_replaced_and_all_else_stays() {
        for (text, expected) in [
            ("$(A)-$(B)", "1-2"),
            ("$$(A)", "$(A)"),
            ("$(C) $A $", "$(C) $A $"),
            ("$(A", "$(A"),
            ("x$(A)$$", "x1$"),
            ("", ""),
        ] {
            let known = |name: &str| match name {
                "A" => Some("1".to_owned()),
                "B" => Some("2".to_owned()),
                _ => None,
            };
            assert_eq!(expand(text, known), expected);
        }
    }
}
