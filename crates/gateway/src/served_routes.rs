//! Which routes a runtime is known for.

use berth_domain::EngineRoute::{
    self, AudioTranscriptions, ChatCompletions, Completions, Embeddings, Messages, Rerank, Responses,
};

/// What llama.cpp's server answers.
const LLAMA: &[EngineRoute] = &[ChatCompletions, Completions, Embeddings, Responses, Messages, Rerank];
/// What vLLM answers, depending on the model that it serves.
const VLLM: &[EngineRoute] =
    &[ChatCompletions, Completions, Embeddings, Responses, Messages, Rerank, AudioTranscriptions];
/// What the demo of `berth dev` answers.
const DEMO: &[EngineRoute] = &[ChatCompletions, Completions, Messages];

/// The routes of a model whose entry names none. A runtime that is not known may answer any route: its engine says
/// which it does not know.
pub(crate) fn of_runtime(runtime: &str) -> &'static [EngineRoute] {
    match runtime {
        "llama-server" | "llama.cpp" | "llama" => LLAMA,
        "vllm" => VLLM,
        "demo" => DEMO,
        _ => &EngineRoute::ALL,
    }
}
