//! Kafka's CamelCase names in Rust's and JSON's spellings.

const KEYWORDS: [&str; 4] = ["type", "match", "move", "ref"];

/// `TopicId` -> `topic_id`; `KRaft` counts as one word.
pub(super) fn snake(name: &str) -> String {
    let name: Vec<char> = name.replace("KRaft", "Kraft").chars().collect();
    let mut out = String::new();
    for (i, c) in name.iter().enumerate() {
        let follows_word = i > 0 && !name[i - 1].is_uppercase();
        let starts_word = i > 0 && name.get(i + 1).is_some_and(|next| next.is_lowercase());
        if c.is_uppercase() && (follows_word || starts_word) {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// A field's identifier.
pub(super) fn field(name: &str) -> String {
    let name = snake(name);
    if KEYWORDS.contains(&name.as_str()) { format!("r#{name}") } else { name }
}

/// A constant's identifier.
pub(super) fn constant(name: &str) -> String {
    snake(name).to_uppercase()
}

/// Kafka's JSON name: the first letter lowered.
pub(super) fn json(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().into_iter().flat_map(char::to_lowercase).chain(chars).collect()
}
