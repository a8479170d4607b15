//! Numbers in the notation in which the API server's messages show them.

/// A floating-point number as Go prints it: no trailing `.0`, an exponent from 1e21 on.
pub(crate) fn float(n: f64) -> String {
    if n.abs() >= 1e21 || (n != 0.0 && n.abs() < 1e-4) {
        let text = format!("{n:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |d| ('-', d));
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{n}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_printed_as_go_does() {
        for (n, text) in [
            (1.0, "1"),
            (0.5, "0.5"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-07"),
            (1e20, "100000000000000000000"),
        ] {
            assert_eq!(float(n), text);
        }
    }
}
