//! Which response answers a request, for those who send requests of any kind.

use crate::api::ApiKey;
use crate::error::EncodeError;
use crate::message::Message;
use crate::writer::Writer;
use crate::{framing, messages};

/// A request, and what answers it.
pub trait Request {
    /// The key that it is sent under.
    const KEY: ApiKey;

    /// What answers it; borrows from the bytes that it is decoded from.
    type Response<'r>: Message<'r>;

    /// Appends the whole request: size, header, body.
    ///
    /// # Errors
    /// Those of [`framing::encode_request`].
    fn encode_request(
        &self,
        w: &mut Writer,
        correlation_id: i32,
        client_id: Option<&str>,
        version: i16,
    ) -> Result<(), EncodeError>;
}

macro_rules! requests {
    ($($request:ident $($lt:lifetime)? $response:ident $($rt:lifetime)?;)*) => {$(
        impl Request for messages::$request $(<$lt>)? {
            const KEY: ApiKey = ApiKey(messages::$request::API_KEY.expect("every request has a key"));

            type Response<'r> = messages::$response $(<$rt>)?;

            fn encode_request(
                &self,
                w: &mut Writer,
                correlation_id: i32,
                client_id: Option<&str>,
                version: i16,
            ) -> Result<(), EncodeError> {
                framing::encode_request(w, correlation_id, client_id, version, self)
            }
        }
    )*};
}

include!(concat!(env!("OUT_DIR"), "/request.rs"));

#[cfg(test)]
mod tests {
    use super::Request;
    use crate::messages::{ApiVersionsRequest, MetadataRequest, ProduceResponse, SaslHandshakeResponse};
    use crate::{ApiKey, Message};

    #[test]
    fn responses_know_how_long_the_broker_wants_to_hear_nothing() {
        fn of<'a>(message: &impl Message<'a>) -> i32 {
            message.throttle_time_ms()
        }
        assert_eq!(of(&ProduceResponse { throttle_time_ms: 7, ..Default::default() }), 7);
        assert_eq!(of(&SaslHandshakeResponse::default()), 0);
    }

    fn answer<R: Request>() -> (&'static str, ApiKey) {
        (<R::Response<'_> as Message<'_>>::NAME, R::KEY)
    }

    #[test]
    fn a_request_knows_its_key_and_its_response() {
        assert_eq!(answer::<MetadataRequest<'_>>(), ("MetadataResponse", ApiKey::METADATA));
        assert_eq!(answer::<ApiVersionsRequest<'_>>(), ("ApiVersionsResponse", ApiKey::API_VERSIONS));
    }
}
