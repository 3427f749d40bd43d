//! Record batch v2: views, builder, compression, checksum.
