//! Single requests that both servers are asked in the same state.
