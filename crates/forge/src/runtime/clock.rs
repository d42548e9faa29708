//! Time and randomness, handed in so that tests choose the hour.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use model::{Time, tokens::Secret};

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now, cut to microseconds.
    fn now(&self) -> Time;
}

/// The clock of the machine.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        let now = Time::now().as_microsecond();
        Time::from_microsecond(now).unwrap_or(Time::UNIX_EPOCH)
    }
}

/// Makes texts that nobody can guess.
pub trait Secrets: Send + Sync {
    /// Fills the bytes with randomness.
    fn fill(&self, bytes: &mut [u8]);

    /// A fresh access token: 20 characters that go into URLs and headers as they are.
    fn token(&self) -> Secret {
        let mut bytes = [0; 15];
        self.fill(&mut bytes);
        Secret::new(URL_SAFE_NO_PAD.encode(bytes))
    }
}

/// The random source of the machine.
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
    fn a_token_has_twenty_characters_and_never_comes_twice() {
        let (one, two) = (SystemSecrets.token(), SystemSecrets.token());
        assert!(model::tokens::is_well_formed(one.reveal()));
        assert_eq!(one.reveal().len(), model::tokens::LENGTH);
        assert_ne!(one.reveal(), two.reveal());
    }
}
