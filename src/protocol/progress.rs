//! Progress of a call, as a server reports it.

use bytes::Bytes;

use super::json::Json;
use super::rope::ObjectWriter;

/// One `notifications/progress`, as the server spelled it. It is kept as long as its task runs, so it is small and
/// holds on to nothing of the message that it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number reached so far.
    pub progress: Json,
    /// The number at the end, where the server knows it.
    pub total: Option<Json>,
    /// What the server says it is doing, at most 8 KiB of it.
    pub message: Option<String>,
}

/// Bytes of a message that are kept.
const MESSAGE: usize = 8 << 10;
/// Bytes of a number that is believed to be one.
const NUMBER: usize = 64;

impl Progress {
    /// Writes the members of the `params` of a progress notification under `token`.
    pub(crate) fn write(&self, token: &Json, params: &mut ObjectWriter) {
        params.raw("progressToken", token).raw("progress", &self.progress);
        if let Some(total) = &self.total {
            params.raw("total", total);
        }
        if let Some(message) = &self.message {
            params.string("message", message);
        }
    }

    /// Reads the `params` of a progress notification; `None` if they are malformed.
    pub fn read(params: &Json) -> Option<Self> {
        let members = params.members().ok()?;
        let number = |name: &str| {
            let text = members.get(name)?.get();
            serde_json::from_str::<serde_json::Number>(text).ok().filter(|_| text.len() <= NUMBER)?;
            Json::parse(Bytes::copy_from_slice(text.as_bytes())).ok()
        };
        Some(Self {
            progress: number("progress")?,
            total: number("total"),
            message: members.get("message").and_then(|raw| serde_json::from_str(raw.get()).ok()).map(shortened),
        })
    }

    /// One line for `statusMessage`: `3 of 5: loading rows`.
    pub fn describe(&self) -> String {
        let mut line = self.progress.as_str().to_owned();
        if let Some(total) = &self.total {
            line.push_str(" of ");
            line.push_str(total.as_str());
        }
        if let Some(message) = &self.message {
            line.push_str(": ");
            line.extend(message.chars().take(300));
        }
        line
    }
}

fn shortened(mut message: String) -> String {
    if message.len() > MESSAGE {
        message.truncate(message.floor_char_boundary(MESSAGE));
        message.shrink_to_fit();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: String) -> Option<Progress> {
        Progress::read(&Json::parse(Bytes::from(text)).unwrap())
    }

    #[test]
    fn progress_is_small_and_lets_go_of_the_message_it_came_in() {
        let text = Bytes::from(format!(r#"{{"progress":1.0,"total":2,"message":"{}"}}"#, "\u{e9}".repeat(1 << 20)));
        let params = Json::parse(text.clone()).unwrap();
        let progress = Progress::read(&params).unwrap();
        assert_eq!((progress.progress.as_str(), progress.total.as_ref().unwrap().as_str()), ("1.0", "2"));
        let message = progress.message.as_ref().unwrap();
        assert!(message.len() <= MESSAGE && message.capacity() <= 2 * MESSAGE && message.ends_with('\u{e9}'));
        drop(params);
        assert!(text.is_unique());
    }

    #[test]
    fn a_number_of_many_digits_is_no_progress() {
        assert!(read(format!(r#"{{"progress":{}}}"#, "0")).is_some());
        assert!(read(format!(r#"{{"progress":1.{}}}"#, "0".repeat(NUMBER))).is_none());
    }
}
