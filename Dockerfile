# docker build --build-arg DEVICE=cpu -t tinglu:cpu .
# docker build --build-arg DEVICE=gpu -t tinglu:gpu .
ARG PYTHON_VERSION=3.12

FROM python:${PYTHON_VERSION}-slim AS build
ARG DEVICE=cpu
WORKDIR /opt/tinglu
COPY pyproject.toml README.md LICENSE ./
COPY requirements requirements
COPY scripts scripts
COPY app app
COPY audio audio
COPY diarization diarization
COPY engine engine
COPY vad vad
RUN sh scripts/setup.sh "$DEVICE" .venv --no-dev

FROM python:${PYTHON_VERSION}-slim
ARG DEVICE=cpu
# vLLM's Triton kernels are compiled at start on a GPU; the CPU build needs libnuma and the allocator.
RUN apt-get update \
    && apt-get install --no-install-recommends --yes libnuma1 $([ "$DEVICE" = gpu ] && echo gcc libc6-dev) \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 tinglu \
    && install --directory --owner tinglu /cache
COPY --from=build /opt/tinglu /opt/tinglu
USER tinglu
ENV PATH=/opt/tinglu/.venv/bin:$PATH \
    TINGLU_HOST=0.0.0.0 \
    TINGLU_CACHE_DIR=/cache
VOLUME /cache
EXPOSE 8899
HEALTHCHECK --start-period=180s --interval=10s --timeout=3s \
    CMD ["python", "-c", "import json, urllib.request as r; assert json.load(r.urlopen('http://127.0.0.1:8899/health'))['status'] == 'ok'"]
# exec form: SIGTERM reaches the server, which drains.
CMD ["tinglu", "serve"]
