//! Regular expressions of clients: topics of a subscription, transactional ids to list.

use regex_lite::{Error, Regex, RegexBuilder};

/// Most bytes that a compiled expression may take: a search takes time for each of its states and each byte of a name, and a
/// few characters can stand for very many states.
const MOST_BYTES: usize = 64 << 10;

/// Whether a whole name matches `expression`.
///
/// # Errors
/// What is wrong with the expression; one that is too large is wrong as well.
pub fn whole_match(expression: &str) -> Result<impl Fn(&str) -> bool, String> {
    // Alone first: what only makes sense inside of the group is none.
    let compiled = compile(expression).and_then(|_| compile(&format!(r"\A(?:{expression})\z")));
    compiled.map(|regex| move |name: &str| regex.is_match(name)).map_err(|error| error.to_string())
}

fn compile(expression: &str) -> Result<Regex, Error> {
    RegexBuilder::new(expression).size_limit(MOST_BYTES).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_matches_whole_names() {
        let matches = |expression, name| whole_match(expression).unwrap()(name);
        assert!(matches("tx-.*", "tx-1") && matches("a|tx-1", "tx-1"));
        assert!(!matches("tx", "tx-1") && !matches("x-1", "tx-1"));
        for wrong in ["(", "a)(b", "["] {
            assert!(whole_match(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_takes_long_to_search_is_no_expression() {
        for large in ["(?:.?){1000}{80}", "(?:a?){10000}", r"\w{20000}"] {
            assert!(whole_match(large).is_err(), "{large}");
        }
        let names: Vec<String> = (10..60).map(|number| format!("some.topic.name-{number}")).collect();
        assert!(whole_match(&names.join("|")).unwrap()("some.topic.name-59"));
    }
}
