//! `storage format --add-scram`: a credential that a cluster starts with, from the argument's text.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::digest::Digest;
use hmac::{Hmac, Mac};
use milena_io::Rng;
use milena_protocol::messages::UserScramCredentialRecord;
use sha2::{Sha256, Sha512};

/// Rounds of a credential that names none.
const DEFAULT_ITERATIONS: i32 = 4096;
const MIN_ITERATIONS: i32 = 4096;
const MAX_ITERATIONS: i32 = 16_384;
/// Characters of a random salt, which is text as in Kafka: 128 bits and more in base 36.
const SALT_LEN: usize = 26;

/// A hash function that SCRAM is used with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScramMechanism {
    /// SCRAM-SHA-256.
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

/// An argument that describes no credential. The texts are Kafka's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScramError(String);

impl ScramMechanism {
    /// The mechanism of a SASL name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "SCRAM-SHA-256" => Some(Self::Sha256),
            "SCRAM-SHA-512" => Some(Self::Sha512),
            _ => None,
        }
    }

    /// The number in records and requests.
    pub fn id(self) -> i8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha512 => 2,
        }
    }

    fn constant(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM_SHA_256",
            Self::Sha512 => "SCRAM_SHA_512",
        }
    }

    /// The password, salted and hashed `iterations` times.
    pub fn salted_password(self, password: &str, salt: &[u8], iterations: NonZeroU32) -> Vec<u8> {
        let rounds = iterations.get();
        match self {
            Self::Sha256 => pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(password.as_bytes(), salt, rounds).to_vec(),
            Self::Sha512 => pbkdf2::pbkdf2_hmac_array::<Sha512, 64>(password.as_bytes(), salt, rounds).to_vec(),
        }
    }

    /// What a server keeps of a salted password: the stored key and the server key.
    pub fn server_keys(self, salted_password: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mac = |label: &[u8]| match self {
            Self::Sha256 => keyed::<Hmac<Sha256>>(salted_password, label),
            Self::Sha512 => keyed::<Hmac<Sha512>>(salted_password, label),
        };
        let client_key = mac(b"Client Key");
        let stored_key = match self {
            Self::Sha256 => Sha256::digest(client_key).to_vec(),
            Self::Sha512 => Sha512::digest(client_key).to_vec(),
        };
        (stored_key, mac(b"Server Key"))
    }
}

fn keyed<M: Mac + hmac::digest::KeyInit>(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = <M as hmac::digest::KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// Reads `SCRAM-SHA-256=[name=alice,password=secret,…]`; a salt that is not given is drawn.
///
/// # Errors
/// [`ScramError`] with Kafka's message.
pub fn parse_scram(argument: &str, rng: &mut dyn Rng) -> Result<UserScramCredentialRecord<'static>, ScramError> {
    let argument = argument.trim();
    let fail = |text: String| Err(ScramError(text));
    let Some((mechanism, config)) = argument.split_once('=') else {
        return fail(format!("Failed to find equals sign in SCRAM argument '{argument}'"));
    };
    let Some(mechanism) = ScramMechanism::from_name(mechanism) else {
        return fail(format!("The add-scram mechanism {mechanism} is not supported."));
    };
    let Some(config) = config.strip_prefix('[') else {
        return fail("Expected configuration string to start with [".to_owned());
    };
    let Some(config) = config.strip_suffix(']') else {
        return fail("Expected configuration string to end with ]".to_owned());
    };
    let mut parts = components(config)?;
    let Some(name) = parts.remove("name") else { return fail("You must supply 'name' to add-scram".to_owned()) };
    let salt = parts.remove("salt").map(|text| decode("salt", text)).transpose()?;
    let iterations = match parts.remove("iterations") {
        None => DEFAULT_ITERATIONS,
        Some(text) => text.parse().map_err(|_| ScramError(format!("Failed to parse iterations count: {text}")))?,
    };
    let secret = match (parts.remove("password"), parts.remove("saltedpassword")) {
        (Some(password), _) => Secret::Password(password),
        (None, None) => return fail("You must supply one of 'password' or 'saltedpassword' to add-scram".to_owned()),
        (None, Some(_)) if salt.is_none() => {
            return fail("You must supply 'salt' with 'saltedpassword' to add-scram".to_owned());
        }
        (None, Some(text)) => Secret::Salted(decode("saltedPassword", text)?),
    };
    if !parts.is_empty() {
        return fail(format!("Unknown SCRAM configurations: {}", parts.into_keys().collect::<Vec<_>>().join(", ")));
    }
    let rounds = check_iterations(mechanism, iterations)?;
    let salt = salt.unwrap_or_else(|| random_salt(rng));
    let salted_password = match secret {
        Secret::Password(password) => mechanism.salted_password(password, &salt, rounds),
        Secret::Salted(bytes) => bytes,
    };
    let (stored_key, server_key) = mechanism.server_keys(&salted_password);
    Ok(UserScramCredentialRecord {
        name: name.to_owned().into(),
        mechanism: mechanism.id(),
        salt: salt.into(),
        stored_key: stored_key.into(),
        server_key: server_key.into(),
        iterations,
    })
}

enum Secret<'a> {
    Password(&'a str),
    Salted(Vec<u8>),
}

/// Splits `a=b,c="d"`; of two with one name the later one counts.
fn components(config: &str) -> Result<BTreeMap<&str, &str>, ScramError> {
    let mut parts = BTreeMap::new();
    for component in config.split(',') {
        let Some((name, value)) = component.split_once('=') else {
            return Err(ScramError(format!("No equals sign found in SCRAM component: {component}")));
        };
        let unquoted = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
        parts.insert(name, unquoted.unwrap_or(value));
    }
    Ok(parts)
}

fn decode(what: &str, text: &str) -> Result<Vec<u8>, ScramError> {
    STANDARD.decode(text).map_err(|_| ScramError(format!("Failed to decode given {what}: {text}")))
}

fn check_iterations(mechanism: ScramMechanism, iterations: i32) -> Result<NonZeroU32, ScramError> {
    let refuse = |bound: String| {
        let name = mechanism.constant();
        ScramError(format!("The 'iterations' value must be {bound} for add-scram using {name}"))
    };
    if iterations < MIN_ITERATIONS {
        return Err(refuse(format!(">= {MIN_ITERATIONS}")));
    }
    if iterations > MAX_ITERATIONS {
        return Err(refuse(format!("<= {MAX_ITERATIONS}")));
    }
    Ok(NonZeroU32::new(iterations.unsigned_abs()).expect("at least the minimum"))
}

fn random_salt(rng: &mut dyn Rng) -> Vec<u8> {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    (0..SALT_LEN).map(|_| DIGITS[usize::try_from(rng.below(36)).unwrap_or_default()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use milena_io::SimRng;

    fn parse(argument: &str) -> Result<UserScramCredentialRecord<'static>, String> {
        parse_scram(argument, &mut SimRng::new(1)).map_err(|e| e.to_string())
    }

    #[test]
    fn keys_are_those_that_kafka_computes() {
        let salt = "MWFoMjVocmNjOWFoejdoeWo5bDRoNXM0Mmg=";
        let record = parse(&format!("SCRAM-SHA-256=[name=alice,password=\"secret\",salt={salt}]")).unwrap();
        assert_eq!((&*record.name, record.mechanism, record.iterations), ("alice", 1, 4096));
        assert_eq!(STANDARD.encode(&*record.stored_key), "gEbfWER589skEVnBz/alQMAwuoLqFvNq+0XnAoofBvY=");
        assert_eq!(STANDARD.encode(&*record.server_key), "VgQSeh90JDRzOOh7IkqVXEzayITKF965jwG9cXS29Pc=");
        let salt = "Z2NwZmt2dW16emJ3N3h0OHkzMjJwaWYxMA==";
        let record = parse(&format!("SCRAM-SHA-512=[name=carol,password=x,salt={salt}]")).unwrap();
        assert_eq!(
            STANDARD.encode(&*record.stored_key),
            "EixigKnAoMXNpIiEwEHrIT1RMobWYvLBt0IWB5Px6DCgmBPOD2lUbE7Q88NIVe+KM+LdQc7qgAS2rUWYLeqxKA=="
        );
    }

    #[test]
    fn a_salted_password_needs_its_salt() {
        let rounds = NonZeroU32::new(4096).unwrap();
        let salted = STANDARD.encode(ScramMechanism::Sha256.salted_password("secret", b"salt", rounds));
        let salt = STANDARD.encode(b"salt");
        let given = parse(&format!("SCRAM-SHA-256=[name=a,saltedpassword={salted},salt={salt}]"));
        assert_eq!(given, parse(&format!("SCRAM-SHA-256=[name=a,password=secret,salt={salt}]")));
        assert_eq!(
            parse(&format!("SCRAM-SHA-256=[name=a,saltedpassword={salted}]")).unwrap_err(),
            "You must supply 'salt' with 'saltedpassword' to add-scram"
        );
    }

    #[test]
    fn bad_arguments_are_refused_with_kafkas_messages() {
        let refused = |argument| parse(argument).unwrap_err();
        assert_eq!(refused("x"), "Failed to find equals sign in SCRAM argument 'x'");
        assert_eq!(refused("SCRAM-FOO=[name=a]"), "The add-scram mechanism SCRAM-FOO is not supported.");
        assert_eq!(refused("SCRAM-SHA-256=name=a]"), "Expected configuration string to start with [");
        assert_eq!(refused("SCRAM-SHA-256=[name=a"), "Expected configuration string to end with ]");
        assert_eq!(refused("SCRAM-SHA-256=[password=a]"), "You must supply 'name' to add-scram");
        assert_eq!(refused("SCRAM-SHA-256=[name]"), "No equals sign found in SCRAM component: name");
        assert_eq!(
            refused("SCRAM-SHA-256=[name=a]"),
            "You must supply one of 'password' or 'saltedpassword' to add-scram"
        );
        assert_eq!(
            refused("SCRAM-SHA-256=[name=a,password=b,iterations=100]"),
            "The 'iterations' value must be >= 4096 for add-scram using SCRAM_SHA_256"
        );
        assert_eq!(
            refused("SCRAM-SHA-256=[name=a,password=b,iterations=100000]"),
            "The 'iterations' value must be <= 16384 for add-scram using SCRAM_SHA_256"
        );
        assert_eq!(refused("SCRAM-SHA-256=[name=a,password=b,foo=1]"), "Unknown SCRAM configurations: foo");
    }

    #[test]
    fn salts_are_drawn_when_not_given() {
        let mut rng = SimRng::new(1);
        let mut salt = || parse_scram("SCRAM-SHA-512=[name=a,password=b]", &mut rng).unwrap().salt.into_owned();
        let first = salt();
        assert_ne!(first, salt());
        assert_eq!(first.len(), SALT_LEN);
    }
}
