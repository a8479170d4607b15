//! What a part says of itself at `/metrics`.

use std::{net::SocketAddr, sync::LazyLock};

use reqwest::Client;

/// Made once: in making it all authorities are read that others are trusted by. A part that is asked seldom may close its
/// connection meanwhile, so each question has its own.
static CLIENT: LazyLock<Option<Client>> = LazyLock::new(|| Client::builder().pool_max_idle_per_host(0).build().ok());

/// The counters of a part at one moment.
pub(crate) struct Scraped(String);

/// Asks a part; nothing where it does not answer.
pub(crate) async fn scrape(part: SocketAddr) -> Option<Scraped> {
    let asked = CLIENT.as_ref()?.get(format!("http://{part}/metrics"));
    let answer = asked.send().await.ok()?;
    answer.text().await.ok().map(Scraped)
}

impl Scraped {
    /// One figure, summed over its labels.
    pub(crate) fn total(&self, name: &str) -> Option<f64> {
        let values: Vec<f64> = self.of(name).map(|(_, value)| value).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// One figure, by the value of a label; summed over the others.
    pub(crate) fn by(&self, name: &str, label: &str) -> std::collections::BTreeMap<String, f64> {
        let mut sums = std::collections::BTreeMap::new();
        let start = format!("{label}=\"");
        for (labels, value) in self.of(name) {
            let word = labels
                .split(',')
                .find_map(|pair| pair.strip_prefix(&start)?.strip_suffix('"'));
            *sums.entry(word.unwrap_or_default().to_owned()).or_default() += value;
        }
        sums
    }

    /// The samples of a figure: labels, value.
    fn of(&self, name: &str) -> impl Iterator<Item = (&str, f64)> {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = rest.rsplit_once(' ')?;
            let labels = match labels {
                "" => "",
                labels => labels.strip_prefix('{')?.strip_suffix('}')?,
            };
            Some((labels, value.parse().ok()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_over_what_is_not_asked_for() {
        let scraped = Scraped(
            "# TYPE calls counter\ncalls_total{verb=\"get\",code=\"200\"} 3\ncalls_total{verb=\"get\",code=\"404\"} 1\n\
             calls_total{verb=\"patch\",code=\"200\"} 2\ncalls_total_more 9\nleader 1\n"
                .to_owned(),
        );
        assert_eq!(scraped.total("calls_total"), Some(6.0));
        assert_eq!(scraped.total("leader"), Some(1.0));
        assert_eq!(scraped.total("absent"), None);
        let by: Vec<_> = scraped.by("calls_total", "verb").into_iter().collect();
        assert_eq!(by, [("get".to_owned(), 4.0), ("patch".to_owned(), 2.0)]);
    }
}
