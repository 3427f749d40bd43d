//! A request as handlers meet it: header, body, and the way back. Framing is `net`'s business, the meaning of a body
//! the handler's.

use std::borrow::Cow;

use milena_net::{Claim, Outgoing, Replies};
use milena_protocol::messages::ResponseHeader;
use milena_protocol::{
    ApiKey, DecodeError, EncodeError, Gap, Message, Reader, Writer, framing, response_header_version,
};

use crate::controller::ControllerError;
use crate::session::Peer;

/// What a request says about itself.
#[derive(Clone, Debug)]
pub struct Header<'a> {
    /// Which API.
    pub key: ApiKey,
    /// Version of the request, and so of the response.
    pub version: i16,
    /// Comes back with the response.
    pub correlation_id: i32,
    /// The client's name for itself.
    pub client_id: Option<Cow<'a, str>>,
}

impl<'a> Header<'a> {
    /// Reads the header of a frame; also says where the body begins.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] when the frame ends within the header or its tagged section is broken.
    pub fn parse(frame: &'a [u8]) -> Result<(Self, usize), Refusal> {
        let (header, body) = framing::decode_request_header(frame)?;
        let body_at = frame.len() - body.remaining();
        Ok((
            Self::new(
                ApiKey(header.request_api_key),
                header.request_api_version,
                header.correlation_id,
                header.client_id,
            ),
            body_at,
        ))
    }

    /// A header with these fields.
    pub fn new(key: ApiKey, version: i16, correlation_id: i32, client_id: Option<Cow<'a, str>>) -> Self {
        Self { key, version, correlation_id, client_id }
    }
}

/// A request of one connection, borrowed from the buffer it was received in.
pub struct Call<'a> {
    /// Its header.
    pub header: Header<'a>,
    /// Its body.
    pub body: &'a [u8],
    /// Who sent it.
    pub peer: &'a Peer,
    /// What its decoded form counts in while the request waits for its answer.
    pub claim: Option<&'a Claim>,
}

impl<'a> Call<'a> {
    /// Decodes the body.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] when the body is not one of this version. Bytes after it are ignored, as by Kafka.
    pub fn request<M: Message<'a>>(&self) -> Result<M, Refusal> {
        let mut reader = Reader::new(self.body);
        let request = M::decode(&mut reader, self.header.version)?;
        if let Some(claim) = self.claim {
            claim.add(reader.array_bytes() as u64);
        }
        Ok(request)
    }

    /// Puts a response onto `out`.
    ///
    /// # Errors
    /// [`Refusal::Unanswerable`] when the response says something that this version has no words for.
    pub fn answer<'r, M: Message<'r>>(&self, out: &mut Outgoing, response: &M) -> Result<(), Refusal> {
        let gaps = answer(&self.header, out, response)?;
        debug_assert!(gaps.is_empty(), "only Fetch leaves gaps");
        Ok(())
    }
}

/// Puts a response to a request with `header` onto `out`. Bytes of gaps are the caller's to send: where they go comes
/// back.
///
/// # Errors
/// [`Refusal::Unanswerable`] when the response says something that this version has no words for.
pub fn answer<'r, M: Message<'r>>(header: &Header<'_>, out: &mut Outgoing, response: &M) -> Result<Vec<Gap>, Refusal> {
    let mut writer = Writer::over(std::mem::take(&mut out.bytes));
    let written = write(header, &mut writer, response);
    out.bytes = writer.buf;
    written.map(|()| writer.gaps)
}

fn write<'r, M: Message<'r>>(header: &Header<'_>, writer: &mut Writer, response: &M) -> Result<(), Refusal> {
    let head = ResponseHeader { correlation_id: header.correlation_id };
    let version = response_header_version(header.key, header.version).unwrap_or(0);
    head.encode(writer, version)?;
    Ok(response.encode(writer, header.version)?)
}

/// A request that owns its bytes, so that it can wait.
pub struct OwnedRequest {
    header: Header<'static>,
    body: Box<[u8]>,
    peer: Peer,
    claim: Claim,
}

impl OwnedRequest {
    /// Copies a request out of its connection's buffer. As long as there is the copy, it counts among received bytes, and so does what is
    /// decoded of it.
    pub fn new(call: &Call<'_>, replies: &Replies<'_>) -> Self {
        let Header { key, version, correlation_id, ref client_id } = call.header;
        let client_id = client_id.as_deref().map(|id| Cow::Owned(id.to_owned()));
        let header = Header { key, version, correlation_id, client_id };
        Self { header, body: call.body.into(), peer: call.peer.clone(), claim: replies.claim(call.body.len()) }
    }

    /// The request, borrowed.
    pub fn call(&self) -> Call<'_> {
        let client_id = self.header.client_id.as_deref().map(Cow::Borrowed);
        Call {
            header: Header { client_id, ..self.header },
            body: &self.body,
            peer: &self.peer,
            claim: Some(&self.claim),
        }
    }
}

/// Most bytes that one answer may take in memory before it is encoded, about. Some requests ask for much with few bytes, and
/// can name the same thing again and again.
const MOST_ANSWER_BYTES: usize = 256 << 20;

/// How much longer an answer may get that is put together from many parts.
pub struct Room {
    left: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self::of(MOST_ANSWER_BYTES)
    }
}

impl Room {
    /// Room for this many bytes.
    pub(crate) fn of(bytes: usize) -> Self {
        Self { left: bytes }
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Takes room for a part of this many bytes.
    ///
    /// # Errors
    /// [`Refusal::TooLong`] when there is none.
    pub fn take(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.left = self.left.checked_sub(bytes).ok_or(Refusal::TooLong)?;
        Ok(())
    }

    /// Takes room for `count` parts that each may repeat a topic's name.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_with_name(&mut self, count: usize, name: &str) -> Result<(), Refusal> {
        /// What is told of a part beside the name, about.
        const REST_BYTES: usize = 128;
        self.take(count.saturating_mul(name.len() + REST_BYTES))
    }
}

/// How many parts of an answer are put together before other connections of the reactor are served.
const PARTS_A_TURN: u32 = 256;

/// Turns of an answer that is put together from many parts, none of which has to wait for anything.
#[derive(Default)]
pub struct Turns {
    parts: u32,
}

impl Turns {
    /// Before each part: lets others in when it is their turn.
    pub async fn part(&mut self) {
        if self.parts == PARTS_A_TURN {
            self.parts = 0;
            tokio::task::yield_now().await;
        }
        self.parts += 1;
    }
}

/// Why a request gets no response and its connection is closed.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The bytes are not a request.
    #[error("malformed request: {0}")]
    Malformed(#[from] DecodeError),
    /// Nobody here serves this API.
    #[error("api key {key} version {version} is not served")]
    Unsupported {
        /// The key asked for.
        key: i16,
        /// The version asked for.
        version: i16,
    },
    /// The answer can't be said in the request's version.
    #[error("response can't be encoded: {0}")]
    Unanswerable(#[from] EncodeError),
    /// It names an element of an access rule as UNKNOWN, which Apache Kafka can't read.
    #[error("an element of an access rule is UNKNOWN")]
    UnknownElement,
    /// It asks for more than one answer may be.
    #[error("the answer would take more than {MOST_ANSWER_BYTES} bytes")]
    TooLong,
    /// A Produce request with acks=0 failed; closing is the only way to say so.
    #[error("a produce request with acks=0 failed: {0}")]
    SilentFailure(&'static str),
    /// What was decided can't be promised.
    #[error(transparent)]
    Controller(#[from] ControllerError),
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn an_answer_of_many_parts_lets_others_in() {
        let mut answer = Box::pin(async {
            let mut turns = Turns::default();
            for _ in 0..3 * PARTS_A_TURN {
                turns.part().await;
            }
        });
        let mut poll = || answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!([poll(), poll(), poll()], [Poll::Pending, Poll::Pending, Poll::Ready(())]);
    }
}
