# An image that serves models: wheels only, a user without rights, a health check.
#
#   docker build -t estimax .
#   docker run -p 8500:8500 -p 8501:8501 -v $PWD/models:/models:ro estimax late=/models/late

FROM python:3.12-slim AS wheels
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY estimax estimax
RUN pip wheel --no-cache-dir --wheel-dir /wheels '.[serve]'

FROM python:3.12-slim
RUN useradd --create-home --uid 1000 server
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels 'estimax[serve]'
USER server
ENV XDG_CACHE_HOME=/home/server/.cache NUMBA_CACHE_DIR=/home/server/.cache/numba
# The host kernels, for this kind of processor: build on the kind that serves.
RUN estimax warm
# Programs of models that appear later, and copies of versions from object stores.
VOLUME /home/server/.cache
EXPOSE 8500 8501
HEALTHCHECK --start-period=120s CMD \
    ["python", "-c", "import urllib.request as r; r.urlopen('http://localhost:8501/readyz')"]
ENTRYPOINT ["estimax", "serve", "--host", "0.0.0.0"]
