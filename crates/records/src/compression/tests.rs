use super::*;

fn samples() -> Vec<Vec<u8>> {
    let mut rng = 1u64;
    let noise = |len: usize, rng: &mut u64| {
        (0..len)
            .map(|_| {
                *rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (*rng >> 56) as u8
            })
            .collect::<Vec<u8>>()
    };
    let mut samples = vec![Vec::new(), vec![7], vec![0; 1 << 20], b"abcabcabc".repeat(30_000)];
    for len in [1000, 32 << 10, (32 << 10) + 1, 64 << 10, (64 << 10) + 1, 300_000] {
        samples.push(noise(len, &mut rng));
        let mut half = noise(len / 2, &mut rng);
        half.resize(len, b'x');
        samples.push(half);
    }
    samples
}

#[test]
fn every_codec_gives_back_what_it_took_with_the_same_contexts_again_and_again() {
    let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new(1 << 20));
    for codec in Compression::ALL {
        for sample in samples() {
            let mut body = b"before".to_vec();
            compressor.compress(codec, codec.default_level(), &sample, &mut body).unwrap();
            assert_eq!(&body[..6], b"before");
            let back = decompressor.decompress(codec, &body[6..]).unwrap();
            assert!(back == sample, "{codec:?} {}", sample.len());
        }
    }
}

#[test]
fn every_level_of_the_topic_configuration_is_written() {
    let sample = b"some text that repeats, some text that repeats".repeat(40);
    let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new(1 << 20));
    let levels = [
        (Compression::Gzip, vec![-1, 0, 1, 6, 9]),
        (Compression::Lz4, vec![1, 8, 9, 10, 12, 17]),
        (Compression::Zstd, vec![-131_072, -7, 1, 3, 19, 22]),
    ];
    for (codec, levels) in levels {
        for level in levels {
            let mut body = Vec::new();
            compressor.compress(codec, level, &sample, &mut body).unwrap();
            assert!(decompressor.decompress(codec, &body).unwrap() == sample, "{codec:?} {level}");
        }
    }
}

#[test]
fn the_limit_is_exact_for_every_codec() {
    let mut compressor = Compressor::new();
    for codec in Compression::ALL.into_iter().skip(1) {
        for sample in samples().into_iter().filter(|sample| !sample.is_empty()) {
            let mut body = Vec::new();
            compressor.compress(codec, codec.default_level(), &sample, &mut body).unwrap();
            let mut decompressor = Decompressor::new(sample.len());
            assert!(decompressor.decompress(codec, &body).unwrap() == sample);
            let limit = sample.len() - 1;
            decompressor.set_limit(limit);
            assert_eq!(
                decompressor.decompress(codec, &body),
                Err(CompressionError::LimitExceeded { limit }),
                "{codec:?}"
            );
        }
    }
}

#[test]
fn a_bomb_stops_at_the_limit_with_little_memory() {
    let zeros = vec![0; 64 << 20];
    let mut compressor = Compressor::new();
    for codec in Compression::ALL.into_iter().skip(1) {
        let mut body = Vec::new();
        compressor.compress(codec, codec.default_level(), &zeros, &mut body).unwrap();
        let limit = 100_000;
        let mut decompressor = Decompressor::new(limit);
        assert_eq!(decompressor.decompress(codec, &body), Err(CompressionError::LimitExceeded { limit }), "{codec:?}");
        assert!(decompressor.buffer_size() <= 2 * limit, "{codec:?} {}", decompressor.buffer_size());
    }
}

#[test]
fn every_cut_of_a_body_is_an_error_or_has_fewer_bytes() {
    let sample = b"0123456789 some text, some text".repeat(3000);
    let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new(1 << 20));
    for codec in Compression::ALL.into_iter().skip(1) {
        let mut body = Vec::new();
        compressor.compress(codec, codec.default_level(), &sample, &mut body).unwrap();
        for len in 0..body.len() {
            let length = decompressor.decompress(codec, &body[..len]).map_or(0, <[u8]>::len);
            assert!(length < sample.len(), "{codec:?} {len}");
        }
    }
}

fn lz4(body: &[u8]) -> Result<Vec<u8>, CompressionError> {
    Decompressor::new(1 << 20).decompress(Compression::Lz4, body).map(<[u8]>::to_vec)
}

fn lz4_frame(flags: u8, descriptor: u8, rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x04, 0x22, 0x4d, 0x18, flags, descriptor];
    if flags & 0x08 != 0 {
        frame.extend_from_slice(&[3, 0, 0, 0, 0, 0, 0, 0]);
    }
    frame.push((twox_hash::XxHash32::oneshot(0, &frame[4..]) >> 8) as u8);
    frame.extend_from_slice(rest);
    frame
}

#[test]
fn an_lz4_frame_is_written_as_kafka_does() {
    let mut body = Vec::new();
    Compressor::new().compress(Compression::Lz4, 9, b"abc", &mut body).unwrap();
    assert_eq!(body, [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, 3, 0, 0, 0x80, b'a', b'b', b'c', 0, 0, 0, 0]);
}

#[test]
fn lz4_frames_of_other_writers_are_read() {
    let stored = [3, 0, 0, 0x80, b'a', b'b', b'c'];
    let end = [0, 0, 0, 0];
    let plain = lz4_frame(0x60, 0x40, &[&stored[..], &end].concat());
    assert_eq!(lz4(&plain).unwrap(), b"abc");
    for descriptor in [0x50, 0x60, 0x70] {
        assert_eq!(lz4(&lz4_frame(0x60, descriptor, &[&stored[..], &end].concat())).unwrap(), b"abc");
    }
    assert_eq!(lz4(&lz4_frame(0x68, 0x40, &[&stored[..], &end].concat())).unwrap(), b"abc", "content size");
    assert_eq!(
        lz4(&lz4_frame(0x64, 0x40, &[&stored[..], &end, &[1, 2, 3, 4]].concat())).unwrap(),
        b"abc",
        "content checksum"
    );
    let checksum = twox_hash::XxHash32::oneshot(0, b"abc").to_le_bytes();
    assert_eq!(
        lz4(&lz4_frame(0x70, 0x40, &[&stored[..], &checksum, &end].concat())).unwrap(),
        b"abc",
        "block checksum"
    );
    assert_eq!(lz4(&[&plain[..], &plain].concat()).unwrap(), b"abc", "only the first frame counts");
}

#[test]
fn lz4_frames_that_kafka_refuses_are_refused() {
    let stored = [3, 0, 0, 0x80, b'a', b'b', b'c', 0, 0, 0, 0];
    let what = |frame: &[u8]| match lz4(frame) {
        Err(CompressionError::Malformed { codec: Compression::Lz4, what }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(what(&lz4_frame(0x40, 0x40, &stored)), "linked blocks are not supported");
    let mut wrong = lz4_frame(0x60, 0x40, &stored);
    wrong[6] ^= 1;
    assert_eq!(what(&wrong), "header checksum does not fit");
    assert_eq!(what(&lz4_frame(0x60, 0x40, &stored[..7])), "end mark is missing");
    assert_eq!(what(&lz4_frame(0x61, 0x40, &stored)), "unsupported frame version or flag");
    assert_eq!(what(&lz4_frame(0x20, 0x40, &stored)), "unsupported frame version or flag");
    assert_eq!(what(&lz4_frame(0x60, 0x30, &stored)), "unsupported block maximum");
    assert_eq!(what(&lz4_frame(0x60, 0x40, &[1, 0, 1, 0x80])), "block is larger than the frame's maximum");
    assert_eq!(what(&lz4_frame(0x70, 0x40, &stored)), "block checksum does not fit");
    assert_eq!(what(b"abcdefgh"), "no frame magic");
}

#[test]
fn snappy_is_read_raw_and_in_xerial_chunks_of_any_size() {
    let raw = snap::raw::Encoder::new().compress_vec(b"hello hello hello").unwrap();
    let read = |body: &[u8]| Decompressor::new(1000).decompress(Compression::Snappy, body).map(<[u8]>::to_vec);
    assert_eq!(read(&raw).unwrap(), b"hello hello hello");
    let header = [&b"\x82SNAPPY\0"[..], &[0, 0, 0, 1, 0, 0, 0, 1]].concat();
    let mut xerial = header.clone();
    for byte in b"abc" {
        let chunk = snap::raw::Encoder::new().compress_vec(&[*byte]).unwrap();
        xerial.extend_from_slice(&(chunk.len() as u32).to_be_bytes());
        xerial.extend_from_slice(&chunk);
    }
    assert_eq!(read(&xerial).unwrap(), b"abc");
    assert_eq!(read(&[&xerial[..], &xerial].concat()).unwrap(), b"abcabc", "concatenated streams");
    assert_eq!(read(&[&xerial[..], &[0, 0]].concat()).unwrap(), b"abc", "no whole length behind the last chunk");
    assert!(read(&[&header[..], &[0xff; 4]].concat()).is_err());
    assert_eq!(read(&[&header[..8], &[0; 8]].concat()).unwrap(), b"", "any version");
}

#[test]
fn a_snappy_block_that_announces_too_much_gets_no_memory() {
    let mut decompressor = Decompressor::new(1 << 30);
    let body = [0xff, 0xff, 0xff, 0xff, 0x03, 0, 0];
    assert!(matches!(decompressor.decompress(Compression::Snappy, &body), Err(CompressionError::Malformed { .. })));
    assert_eq!(decompressor.buffer_size(), 0);
}

#[test]
fn zstd_frames_follow_each_other_and_skippable_ones_are_skipped() {
    let mut compressor = Compressor::new();
    let mut frames = vec![0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9];
    compressor.compress(Compression::Zstd, 3, b"abc", &mut frames).unwrap();
    compressor.compress(Compression::Zstd, 3, &[b'x'; 4 << 20], &mut frames).unwrap();
    compressor.compress(Compression::Zstd, 3, b"", &mut frames).unwrap();
    let mut decompressor = Decompressor::new(5 << 20);
    let back = decompressor.decompress(Compression::Zstd, &frames).unwrap();
    assert_eq!((back.len(), &back[..4]), ((4 << 20) + 3, &b"abcx"[..]));
}

#[test]
fn gzip_members_follow_each_other_and_other_bytes_behind_them_are_ignored() {
    let mut compressor = Compressor::new();
    let mut body = Vec::new();
    compressor.compress(Compression::Gzip, -1, b"abc", &mut body).unwrap();
    let one = body.clone();
    compressor.compress(Compression::Gzip, 9, b"def", &mut body).unwrap();
    body.extend_from_slice(b"garbage");
    let read = |body: &[u8]| Decompressor::new(1000).decompress(Compression::Gzip, body).map(<[u8]>::to_vec);
    assert_eq!(read(&body).unwrap(), b"abcdef");
    let named =
        [&[0x1f, 0x8b, 8, 0x1c, 0, 0, 0, 0, 0, 3][..], &[2, 0, 7, 7], b"name\0", b"comment\0", &one[10..]].concat();
    assert_eq!(read(&named).unwrap(), b"abc");
    for at in one.len() - 8..one.len() {
        let mut wrong = one.clone();
        wrong[at] ^= 1;
        assert!(read(&wrong).is_err(), "trailer byte {at}");
    }
}

#[test]
fn bodies_are_appended_one_after_the_other_and_each_has_the_whole_limit() {
    let mut decompressor = Decompressor::new(10);
    let mut output = Output::default();
    for codec in Compression::ALL {
        let compressed = |bytes: &[u8]| {
            let mut body = Vec::new();
            Compressor::new().compress(codec, codec.default_level(), bytes, &mut body).unwrap();
            if codec == Compression::None { bytes.to_vec() } else { body }
        };
        let before = output.filled().len();
        decompressor.append(codec, &compressed(b"0123456789"), &mut output).unwrap();
        assert!(decompressor.append(codec, &compressed(b"0123456789a"), &mut output).is_err(), "{}", codec.name());
        output.truncate(before + 10);
    }
    assert_eq!(output.filled(), b"0123456789".repeat(5));
}

#[test]
fn what_was_produced_is_counted_and_a_piece_that_failed_as_well() {
    let mut decompressor = Decompressor::new(1 << 20);
    let sample = vec![0; 200_000];
    let mut wanted = 0;
    for codec in Compression::ALL.into_iter().skip(1) {
        let mut body = Vec::new();
        Compressor::new().compress(codec, codec.default_level(), &sample, &mut body).unwrap();
        decompressor.decompress(codec, &body).unwrap();
        wanted += 200_000;
        assert_eq!(decompressor.produced(), wanted, "{codec:?}");
    }
    let mut body = Vec::new();
    Compressor::new().compress(Compression::Zstd, 3, &sample, &mut body).unwrap();
    // The content size: in one call all is decompressed before it is found to be another.
    body[5] += 1;
    for _ in 0..2 {
        decompressor.decompress(Compression::Zstd, &body).unwrap_err();
    }
    assert_eq!(decompressor.produced(), wanted + 400_002);
}
