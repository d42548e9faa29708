//! Sources of time and randomness, injected so that tests control them.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use model::{Time, tokens::Secret};

/// A source of time.
pub trait Clock: Send + Sync {
    /// Returns the current time, truncated to microseconds.
    fn now(&self) -> Time;
}

/// The clock of the operating system.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        let now = Time::now().as_microsecond();
        Time::from_microsecond(now).unwrap_or(Time::UNIX_EPOCH)
    }
}

/// A source of secret random values.
pub trait Secrets: Send + Sync {
    /// Fills a buffer with random bytes.
    fn fill(&self, bytes: &mut [u8]);

    /// Generates an access token: 20 characters that need no escaping in URLs and headers.
    fn token(&self) -> Secret {
        let mut bytes = [0; 15];
        self.fill(&mut bytes);
        Secret::new(URL_SAFE_NO_PAD.encode(bytes))
    }
}

/// The random source of the operating system.
pub struct SystemSecrets;

impl Secrets for SystemSecrets {
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system has a random source");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_twenty_characters_and_is_never_repeated() {
        let (one, two) = (SystemSecrets.token(), SystemSecrets.token());
        assert!(model::tokens::is_well_formed(one.reveal()));
        assert_eq!(one.reveal().len(), model::tokens::LENGTH);
        assert_ne!(one.reveal(), two.reveal());
    }
}
