use std::fmt::{Debug, Display};
use std::time::{Duration, Instant};

use crate::Error;

/// The pause between two looks: short at first, because most conditions are true at once.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Long enough that a hundred waiting tests do not keep a small machine busy.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// What one look at a condition gave: there, or not yet and what was seen instead.
pub trait Outcome {
    /// What [`eventually`] returns.
    type Value;

    /// The value, or what was seen instead, in words.
    ///
    /// # Errors
    /// When the condition does not hold yet.
    fn settle(self) -> Result<Self::Value, String>;
}

impl Outcome for bool {
    type Value = ();

    fn settle(self) -> Result<(), String> {
        if self {
            Ok(())
        } else {
            Err("false".to_owned())
        }
    }
}

impl<T> Outcome for Option<T> {
    type Value = T;

    fn settle(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, E: Display + Debug> Outcome for Result<T, E> {
    type Value = T;

    fn settle(self) -> Result<T, String> {
        self.map_err(|error| error.to_string())
    }
}

/// Looks again and again until the condition holds: `true`, `Some` or `Ok`.
///
/// A look that does not return is abandoned at the deadline.
///
/// # Errors
/// [`Error::Timeout`] with `what` and the last thing seen.
pub async fn eventually<O: Outcome>(
    deadline: Duration,
    what: impl Display,
    mut look: impl AsyncFnMut() -> O,
) -> Result<O::Value, Error> {
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut last = "no answer at all".to_owned();
    loop {
        let left = deadline.saturating_sub(start.elapsed());
        match tokio::time::timeout(left, look())
            .await
            .map(Outcome::settle)
        {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => last = seen,
            Err(_) => last.push_str(" (and then no answer)"),
        }
        if start.elapsed() + pause >= deadline {
            return Err(Error::Timeout {
                what: what.to_string(),
                waited: start.elapsed(),
                last,
            });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// As [`eventually`], and over at once when what is watched has ended by itself.
///
/// # Errors
/// Those of `alive`, and those of [`eventually`].
pub async fn eventually_while<T>(
    alive: impl Fn() -> Result<(), Error>,
    deadline: Duration,
    what: impl Display,
    mut look: impl AsyncFnMut() -> Result<T, String>,
) -> Result<T, Error> {
    eventually(deadline, what, async || match alive() {
        Ok(()) => look().await.map(Ok),
        Err(ended) => Ok(Err(ended)),
    })
    .await?
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn the_value_is_returned_as_soon_as_it_is_there() {
        let mut looks = 0;
        let value = eventually(Duration::from_secs(60), "the third look", async || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(value.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn a_time_out_says_what_was_wanted_and_seen() {
        let never = eventually(SHORT, "rain", async || Err::<(), _>("sunshine")).await;
        let message = never.unwrap_err().to_string();
        assert!(
            message.contains("for rain, last seen: sunshine"),
            "{message}"
        );
    }

    #[tokio::test]
    async fn nobody_waits_for_what_has_ended() {
        let ended = || Err(Error::io("find it", std::io::ErrorKind::NotFound.into()));
        let long = Duration::from_secs(3600);
        let look = async || -> Result<(), String> { panic!("it is not there to be looked at") };
        let never = eventually_while(ended, long, "an answer", look).await;
        let message = never.unwrap_err().to_string();
        assert!(message.contains("find it"), "{message}");
    }

    #[tokio::test]
    async fn a_look_that_hangs_is_abandoned() {
        let never = eventually(SHORT, "an answer", std::future::pending::<bool>).await;
        let message = never.unwrap_err().to_string();
        assert!(message.contains("no answer at all"), "{message}");
    }
}
