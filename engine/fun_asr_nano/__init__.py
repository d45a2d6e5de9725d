"""Fun-ASR-Nano: a SAN-M encoder, an adaptor into the embeddings of Qwen3, and a CTC head for the times of words."""
