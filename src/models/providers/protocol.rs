//! What the four protocols differ in.

use genai::adapter::AdapterKind;
use genai::chat::ReasoningEffort;

/// A way of talking to a model over HTTP, by the name a profile's `provider` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    OpenAi,
    Anthropic,
    Gemini,
    Ollama,
}

impl Protocol {
    pub(super) const ALL: [Self; 4] = [Self::OpenAi, Self::Anthropic, Self::Gemini, Self::Ollama];

    pub(super) fn of(provider: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == provider)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }

    /// Where the provider itself listens.
    pub(super) fn endpoint(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1/",
            Self::Anthropic => "https://api.anthropic.com/v1/",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta/",
            Self::Ollama => "http://localhost:11434/",
        }
    }

    /// The variable that holds the key for the provider itself. Never used for an endpoint of the profile's own: a key
    /// goes only where it was meant to go.
    pub(super) fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::OpenAi => Some("OPENAI_API_KEY"),
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
            Self::Ollama => None,
        }
    }

    pub(super) fn adapter(self) -> AdapterKind {
        match self {
            Self::OpenAi => AdapterKind::OpenAI,
            Self::Anthropic => AdapterKind::Anthropic,
            Self::Gemini => AdapterKind::Gemini,
            Self::Ollama => AdapterKind::Ollama,
        }
    }

    /// Whether one message may hold the results of several calls.
    pub(super) fn groups_results(self) -> bool {
        match self {
            Self::OpenAi | Self::Anthropic | Self::Gemini => true,
            Self::Ollama => false,
        }
    }

    /// Whether parameters beyond the common ones can be passed on.
    pub(super) fn takes_any_parameter(self) -> bool {
        match self {
            Self::OpenAi | Self::Anthropic | Self::Gemini => true,
            Self::Ollama => false,
        }
    }

    /// Whether a JSON Schema can be sent with the request; else only "answer in JSON".
    pub(super) fn takes_schema(self) -> bool {
        match self {
            Self::OpenAi | Self::Anthropic | Self::Gemini => true,
            Self::Ollama => false,
        }
    }

    /// Whether reasoning is a text beside the reply, and goes back as such.
    pub(super) fn reasons_beside_its_reply(self) -> bool {
        match self {
            Self::OpenAi => true,
            Self::Anthropic | Self::Gemini | Self::Ollama => false,
        }
    }

    /// Whether reasoning must be asked to be kept. Gemini's signatures come by themselves, and asking for its thoughts
    /// is refused by models that have none.
    pub(super) fn keeps_reasoning(self) -> bool {
        match self {
            Self::OpenAi | Self::Anthropic => true,
            Self::Gemini | Self::Ollama => false,
        }
    }

    /// The effort that asks for nothing, where the library would take the end of the model's name for an effort
    /// (`-low`, `-high`, `-max`) and cut it off: the name is the user's.
    pub(super) fn effort_that_keeps(self, model: &str) -> Option<ReasoningEffort> {
        ReasoningEffort::from_model_name(model).0?;
        match self {
            // Where none is given, an effort of no word is not sent.
            Self::OpenAi => Some(ReasoningEffort::Budget(0)),
            Self::Anthropic | Self::Gemini => Some(ReasoningEffort::Zero),
            // It reads no effort from a name.
            Self::Ollama => None,
        }
    }
}
