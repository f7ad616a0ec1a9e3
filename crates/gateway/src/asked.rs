//! What a request asks for: the model's name, wherever its body has it.
//!
//! Bodies are passed on as they came. Only an alias is replaced, in its place, by the model's name: engines know no
//! aliases.

use std::ops::Range;

use axum::http::{HeaderMap, header};
use berth_domain::ModelName;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::trouble::Trouble;

/// What is read of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The model, as the caller calls it.
    pub(crate) model: ModelName,
    /// The answer is to be a stream of events.
    pub(crate) streams: bool,
    /// Where the name stands in the body.
    place: Range<usize>,
    is_json: bool,
}

#[derive(Deserialize)]
struct JsonBody<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(default, borrow)]
    stream: Option<&'a RawValue>,
}

impl Asked {
    /// Reads the model and whether a stream is wanted.
    pub(crate) fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, Trouble> {
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case("multipart/form-data") {
            let boundary = boundary_in(content_type).ok_or_else(|| {
                Trouble::invalid("multipart/form-data without a boundary: nothing in it can be found")
            })?;
            return Self::read_multipart(body, boundary);
        }
        if !essence.is_empty() && !essence.eq_ignore_ascii_case("application/json") {
            return Err(Trouble::invalid("send JSON, with Content-Type: application/json"));
        }
        Self::read_json(body)
    }

    fn read_json(body: &[u8]) -> Result<Self, Trouble> {
        let read: JsonBody<'_> = serde_json::from_slice(body)
            .map_err(|error| Trouble::invalid(format!("the body is no JSON object that can be read: {error}")))?;
        let raw = read.model.ok_or_else(|| Trouble::bad_model("`model` is missing"))?.get();
        let name: String =
            serde_json::from_str(raw).map_err(|_| Trouble::bad_model("`model` must be the name of a model"))?;
        let start = raw.as_ptr().addr() - body.as_ptr().addr();
        Ok(Self {
            model: model_name(&name)?,
            streams: read.stream.is_some_and(|stream| stream.get() == "true"),
            place: start..start + raw.len(),
            is_json: true,
        })
    }

    fn read_multipart(body: &[u8], boundary: &str) -> Result<Self, Trouble> {
        let parts = parts(body, boundary);
        let text = |name: &str| {
            let range = parts.iter().find(|(found, _)| found == name).map(|(_, range)| range.clone())?;
            Some((std::str::from_utf8(&body[range.clone()]).ok()?, range))
        };
        let (name, place) = text("model").ok_or_else(|| Trouble::bad_model("the form has no field `model`"))?;
        let streams = text("stream").is_some_and(|(value, _)| value.eq_ignore_ascii_case("true"));
        Ok(Self { model: model_name(name)?, streams, place, is_json: false })
    }

    /// The body with the name of the model in the place of the alias that the caller used.
    pub(crate) fn body_for(&self, name: &ModelName, body: Bytes) -> Bytes {
        if self.model == *name {
            return body;
        }
        let quoted = serde_json::Value::from(name.as_str()).to_string();
        let written = if self.is_json { quoted.as_str() } else { name.as_str() };
        [&body[..self.place.start], written.as_bytes(), &body[self.place.end..]].concat().into()
    }
}

fn model_name(name: &str) -> Result<ModelName, Trouble> {
    // A name that no model can have is a model that is not there.
    ModelName::new(name).map_err(|_| Trouble::model_not_found(name))
}

fn boundary_in(content_type: &str) -> Option<&str> {
    let mut parameters = content_type.split(';').skip(1).filter_map(|parameter| parameter.trim().split_once('='));
    let (_, value) = parameters.find(|(name, _)| name.eq_ignore_ascii_case("boundary"))?;
    Some(value.trim_matches('"')).filter(|boundary| !boundary.is_empty() && boundary.len() <= 70)
}

/// The parts of a form by name, each with the place of its value.
fn parts(body: &[u8], boundary: &str) -> Vec<(String, Range<usize>)> {
    let delimiter = format!("--{boundary}");
    let mut found = Vec::new();
    let Some(mut at) = find(body, delimiter.as_bytes(), 0).map(|start| start + delimiter.len()) else { return found };
    let ending = format!("\r\n{delimiter}");
    while body[at..].starts_with(b"\r\n") {
        let Some(head_end) = find(body, b"\r\n\r\n", at) else { break };
        let value_start = head_end + 4;
        // A part without a value has its delimiter right behind its head.
        let Some(value_end) = find(body, ending.as_bytes(), value_start - 2) else { break };
        if let Some(name) = field_name(&body[at..head_end]) {
            found.push((name, value_start..value_end.max(value_start)));
        }
        at = value_end + ending.len();
    }
    found
}

fn field_name(head: &[u8]) -> Option<String> {
    let head = std::str::from_utf8(head).ok()?;
    let is_disposition = |line: &&str| line.to_ascii_lowercase().starts_with("content-disposition:");
    let line = head.split("\r\n").find(is_disposition)?;
    let name = line.split(';').map(str::trim).find_map(|part| part.strip_prefix("name="))?;
    Some(name.trim_matches('"').to_owned())
}

fn find(text: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    let first = *wanted.first()?;
    let mut at = from;
    loop {
        at += text.get(at..)?.iter().position(|byte| *byte == first)?;
        if text[at..].starts_with(wanted) {
            return Some(at);
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(content_type: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(content_type))])
    }

    #[test]
    fn an_alias_is_replaced_in_its_place_and_nothing_else_changes() {
        let body = r#"{ "odd": {"model":"inner"}, "model" : "gpt-\u0034o", "x":1.50, "stream":true }"#;
        let asked = Asked::read(&headers("application/json"), body.as_bytes()).unwrap();
        assert_eq!((asked.model.as_str(), asked.streams), ("gpt-4o", true));
        let name = ModelName::new("Qwen/Qwen3").unwrap();
        let passed = asked.body_for(&name, Bytes::from(body));
        let expected = r#"{ "odd": {"model":"inner"}, "model" : "Qwen/Qwen3", "x":1.50, "stream":true }"#;
        assert_eq!(passed, expected.as_bytes());
        let own = ModelName::new("gpt-4o").unwrap();
        assert_eq!(asked.body_for(&own, Bytes::from(body)), body.as_bytes(), "its own name is left as it was written");
    }

    #[test]
    fn a_form_says_its_model_between_other_fields() {
        let form = "--xy\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n\r\n--x\r\nRIFF\0\r\n\
                    --xy\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n\
                    --xy\r\nContent-Disposition: form-data; name=\"empty\"\r\n\r\n\r\n--xy--\r\n";
        let asked = Asked::read(&headers("multipart/form-data; boundary=xy"), form.as_bytes()).unwrap();
        assert_eq!(asked.model.as_str(), "whisper");
        let passed = asked.body_for(&ModelName::new("large-v3").unwrap(), Bytes::from(form));
        assert_eq!(passed, form.replace("whisper", "large-v3").as_bytes());
    }

    #[test]
    fn what_names_no_model_is_refused_in_words() {
        let json = headers("application/json");
        for body in
            ["", "[]", "{}", r#"{"model":1}"#, r#"{"model":"a","model":"b"}"#, r#"{"model":"a"} x"#, "{\"model\""]
        {
            assert!(Asked::read(&json, body.as_bytes()).is_err(), "{body}");
        }
        for form in [
            "",
            "--xy",
            "--xy\r\n",
            "--xy\r\n\r\n",
            "--xy--",
            "--xy\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n",
        ] {
            assert!(Asked::read(&headers("multipart/form-data; boundary=xy"), form.as_bytes()).is_err(), "{form}");
        }
        assert!(Asked::read(&headers("text/plain"), br#"{"model":"a"}"#).is_err());
    }
}
