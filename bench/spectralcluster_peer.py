"""Runs in the voices' environment: SpectralCluster (Wang et al., "Speaker diarization with LSTM", 2018) on embeddings.

argv: a .npz of (N, D) embeddings by number, and the .npz of labels to write. Settings are the package's own for the
cited paper, which used embeddings of this kind.
"""

from __future__ import annotations

import sys

import numpy as np
from spectralcluster import configs


def main(given: str, found: str) -> None:
    labels = {}
    with np.load(given) as embeddings:
        for name in embeddings:
            rows = embeddings[name].astype(float)
            labels[name] = configs.icassp2018_clusterer.predict(rows) if len(rows) > 1 else np.zeros(len(rows), int)
    np.savez(found, **labels)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
