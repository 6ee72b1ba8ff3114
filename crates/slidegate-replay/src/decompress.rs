//! Logs that may be compressed by gzip or zstd.

use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const BUFFER_BYTES: usize = 256 * 1024;

/// The contents of a file, whether it is compressed or not.
pub(crate) fn decompressed(mut file: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut magic = Vec::new();
    file.by_ref().take(4).read_to_end(&mut magic)?;
    let (is_gzip, is_zstd) = (magic.starts_with(GZIP), magic.starts_with(ZSTD));
    let file = Cursor::new(magic).chain(file);
    let buffered = |file| BufReader::with_capacity(BUFFER_BYTES, file);
    Ok(match (is_gzip, is_zstd) {
        (true, _) => Box::new(MultiGzDecoder::new(buffered(file))),
        (_, true) => Box::new(ZstdDecoder::new(buffered(file))),
        _ => Box::new(file),
    })
}

/// Decodes all frames of a zstd file: a file may be written, or rotated files be concatenated, in
/// several.
struct ZstdDecoder<R> {
    source: R,
    frame: FrameDecoder,
    /// Why the frame could not be decoded to its end, until all that was decoded has been read.
    failure: Option<io::Error>,
}

/// The end of a frame: a last block that is empty, and four bytes where a checksum may be.
const END_OF_FRAME: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

impl<R: BufRead> ZstdDecoder<R> {
    fn new(source: R) -> Self {
        Self { source, frame: FrameDecoder::new(), failure: None }
    }

    /// Begins the next frame. False at the end of the file.
    fn begin_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.frame.reset(&mut self.source) {
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
                }
                begun => return begun.map(|()| true).map_err(io::Error::other),
            }
        }
        Ok(false)
    }

    /// Decodes the next block. The decoder keeps back as much as later blocks may refer to, so a frame
    /// that breaks off is ended here: what was decoded is read before the error is returned.
    fn decode_block(&mut self) -> io::Result<()> {
        let one = || BlockDecodingStrategy::UptoBlocks(1);
        if let Err(error) = self.frame.decode_blocks(&mut self.source, one()) {
            self.failure = Some(io::Error::other(error));
            self.frame.decode_blocks(&END_OF_FRAME[..], one()).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn check_frame(&mut self) -> io::Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        match self.frame.get_checksum_from_data() {
            Some(checksum) if Some(checksum) != self.frame.get_calculated_checksum() => {
                Err(io::Error::new(ErrorKind::InvalidData, "the checksum does not match"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for ZstdDecoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.frame.can_collect() == 0 {
            if !self.frame.is_finished() {
                self.decode_block()?;
                continue;
            }
            self.check_frame()?;
            if !self.begin_frame()? {
                return Ok(0);
            }
        }
        self.frame.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn read(file: Vec<u8>) -> (String, Option<io::Error>) {
        let mut text = Vec::new();
        let error = decompressed(Cursor::new(file)).unwrap().read_to_end(&mut text).err();
        (String::from_utf8(text).unwrap(), error)
    }

    fn zstd(text: &str) -> Vec<u8> {
        compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
    }

    fn lines(count: usize) -> String {
        (0..count).map(|i| format!("{i} 203.0.113.{} GET /{}\n", i % 250, i * i)).collect()
    }

    #[test]
    fn all_frames_are_read_and_skippable_ones_skipped() {
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let file = [zstd("one\n"), skippable, zstd(""), zstd("two\n")].concat();
        let (text, error) = read(file);
        assert_eq!(text, "one\ntwo\n");
        assert!(error.is_none(), "{error:?}");
    }

    #[test]
    fn what_is_before_a_cut_is_read() {
        let whole = lines(20_000);
        let file = zstd(&whole);
        let (text, error) = read(file[..file.len() / 2].to_vec());
        assert!(text.len() > whole.len() / 4 && whole.starts_with(&text), "{}", text.len());
        assert!(error.is_some());
    }

    #[test]
    fn a_wrong_checksum_is_an_error() {
        let whole = lines(100);
        let mut file = zstd(&whole);
        assert_eq!(read(file.clone()).0, whole);
        *file.last_mut().unwrap() ^= 1;
        let error = read(file).1.unwrap();
        assert_eq!(error.to_string(), "the checksum does not match");
    }

    /// Flips some bits of every file in turn, by a generator of numbers that is always the same.
    #[test]
    fn damaged_files_do_no_harm() {
        let whole = zstd(&lines(500));
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for _ in 0..1000 {
            let mut file = whole.clone();
            for _ in 0..=random(3) {
                let at = ZSTD.len() + random(file.len() - ZSTD.len());
                file[at] ^= 1 << random(8);
            }
            let mut text = Vec::new();
            // Most are errors, some are other texts; none is a panic, or many times as long.
            let _ = decompressed(Cursor::new(file)).unwrap().read_to_end(&mut text);
            assert!(text.len() < 100 * lines(500).len(), "{}", text.len());
        }
    }

    #[test]
    fn what_follows_the_last_frame_must_be_one() {
        let (text, error) = read([&zstd("one\n")[..], b"rubbish"].concat());
        assert_eq!(text, "one\n");
        assert!(error.is_some());
    }
}
