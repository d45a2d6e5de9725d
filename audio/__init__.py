"""Sound in, numbers out: decoding, resampling, filter banks, and the clock that joins seconds and samples."""
