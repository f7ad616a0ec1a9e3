//! Which questions a model's engine answers.

use serde::{Deserialize, Serialize};

/// A route of an OpenAI-compatible engine, below `/v1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EngineRoute {
    /// Conversations.
    #[serde(rename = "chat/completions")]
    ChatCompletions,
    /// Texts that are continued.
    #[serde(rename = "completions")]
    Completions,
    /// Texts as vectors.
    #[serde(rename = "embeddings")]
    Embeddings,
    /// Conversations in OpenAI's newer form.
    #[serde(rename = "responses")]
    Responses,
    /// Conversations in Anthropic's form.
    #[serde(rename = "messages")]
    Messages,
    /// Documents in the order of their relevance.
    #[serde(rename = "rerank")]
    Rerank,
    /// Speech to text.
    #[serde(rename = "audio/transcriptions")]
    AudioTranscriptions,
    /// Text to speech.
    #[serde(rename = "audio/speech")]
    AudioSpeech,
    /// Text to images.
    #[serde(rename = "images/generations")]
    ImagesGenerations,
}

impl EngineRoute {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::ChatCompletions,
        Self::Completions,
        Self::Embeddings,
        Self::Responses,
        Self::Messages,
        Self::Rerank,
        Self::AudioTranscriptions,
        Self::AudioSpeech,
        Self::ImagesGenerations,
    ];

    /// The path below `/v1`, which is also its name in the catalogue.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat/completions",
            Self::Completions => "completions",
            Self::Embeddings => "embeddings",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Rerank => "rerank",
            Self::AudioTranscriptions => "audio/transcriptions",
            Self::AudioSpeech => "audio/speech",
            Self::ImagesGenerations => "images/generations",
        }
    }
}

impl std::fmt::Display for EngineRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_written_as_its_path() {
        for route in EngineRoute::ALL {
            assert_eq!(serde_json::to_value(route).ok(), Some(route.as_str().into()));
        }
    }
}
