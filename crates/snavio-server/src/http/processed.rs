//! What became of a message whose work is reported back, as its sender reads it (CLM-4 to CLM-6).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;
use snavio_gate::Followed;
use snavio_model::bounds;
use snavio_model::claim::Status;
use snavio_model::delivery::processing::Answer;
use snavio_model::json::Reader;
use utoipa::ToSchema;

/// What became of a message.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Processed {
    /// `COMPLETED` or `FAILED`.
    state: &'static str,
    /// It was sent before: nothing ran now, and this is what was answered then.
    #[serde(skip_serializing_if = "Option::is_none")]
    replay: Option<bool>,
    /// The posting reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    /// Until when this is known.
    kept_until: String,
    /// What went wrong; beside `COMPLETED`, what is missing all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// What was answered is destroyed: reference and state are all that is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    erased: Option<bool>,
    #[serde(flatten)]
    answer: AnswerDocument,
}

impl Processed {
    pub(super) fn answer(&mut self) -> &mut AnswerDocument {
        &mut self.answer
    }

    pub(super) fn is_replay(&self) -> bool {
        self.replay == Some(true)
    }
}

/// What a processor answered, byte for byte.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(super) struct AnswerDocument {
    /// The status that the processor answered with.
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<u16>,
    /// What it answered, where that is JSON that strict readers take: at most 59 levels, no member twice, no lone
    /// surrogate, no number out of range. With more members than the document has room for it is in base64, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    response: Option<Box<RawValue>>,
    /// Members of `response`.
    #[serde(skip)]
    members: usize,
    /// What it answered otherwise, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    response_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_type: Option<String>,
}

impl AnswerDocument {
    /// Gives the answer in base64 instead.
    fn encode(&mut self) {
        if let Some(response) = self.response.take() {
            self.response_base64 = Some(STANDARD.encode(response.get()));
        }
    }
}

impl From<&Answer> for AnswerDocument {
    fn from(answer: &Answer) -> Self {
        // What strict readers refuse would spoil the whole document for them, and with it the other entries of a batch.
        let members = answer.strict_members();
        let text = members.and_then(|_| std::str::from_utf8(&answer.body).ok());
        let response = text.and_then(|it| RawValue::from_string(it.to_owned()).ok());
        let is_other = response.is_none() && !answer.body.is_empty();
        Self {
            response_status: Some(answer.status),
            response,
            members: members.unwrap_or_default(),
            response_base64: is_other.then(|| STANDARD.encode(&answer.body)),
            response_type: answer.content_type.clone(),
        }
    }
}

/// A document that may have several answers.
pub(super) trait Answers: Serialize {
    fn answers(&mut self) -> Vec<&mut AnswerDocument>;
}

/// Keeps a document readable for strict readers, which count the members of all its answers together: if these are too
/// many, answers with more than their equal part are given in base64.
pub(super) fn fit_answers(document: &mut impl Answers) {
    let texts: Vec<_> = document.answers().into_iter().map(|answer| answer.response.take()).collect();
    let count = texts.iter().flatten().count();
    if count == 0 {
        return;
    }
    // Each answer's own member is not among these.
    let around = members(document).saturating_add(count);
    let room = bounds::JSON_MEMBERS_MAX.saturating_sub(around);
    let mut answers = document.answers();
    for (answer, text) in answers.iter_mut().zip(texts) {
        answer.response = text;
    }
    answers.retain(|answer| answer.response.is_some());
    if answers.iter().map(|answer| answer.members).sum::<usize>() > room {
        answers.iter_mut().filter(|answer| answer.members > room / count).for_each(|answer| answer.encode());
    }
}

/// The members of a document, or more than strict readers take.
fn members(document: &impl Serialize) -> usize {
    let text = serde_json::to_vec(document).unwrap_or_default();
    let count = |mut reader: Reader<'_>| reader.skip().map(|_| reader.members_read());
    Reader::new(&text).and_then(count).unwrap_or(usize::MAX)
}

/// What a sender is told of it, and with which status: a failure for good is told as the processor told it.
pub(super) fn processed(followed: &Followed) -> (StatusCode, Processed) {
    let answered = followed.answer.as_ref();
    let status = match (followed.status, followed.is_replay) {
        (Status::Completed, false) => StatusCode::CREATED,
        (Status::Completed, true) => StatusCode::OK,
        _ => answered
            .filter(|it| (400..500).contains(&it.status))
            .and_then(|it| StatusCode::from_u16(it.status).ok())
            .unwrap_or(StatusCode::BAD_GATEWAY),
    };
    let processed = Processed {
        state: followed.status.as_str(),
        replay: followed.is_replay.then_some(true),
        reference: followed.reference.clone(),
        kept_until: followed.kept_until.to_string(),
        error: followed.error.clone(),
        erased: followed.is_erased.then_some(true),
        answer: answered.map(AnswerDocument::from).unwrap_or_default(),
    };
    (status, processed)
}
