# The image of `make image`, for those who have a container engine: the same files, user, entrypoint
# and labels. The digest is another one, because engines write layers in their own way.
#
#   docker build --build-arg REVISION=$(git rev-parse HEAD) --tag defragd:0.1.0 .

ARG RUST=1.95

FROM docker.io/library/rust:${RUST}-bookworm AS build
WORKDIR /defragd
COPY . .
RUN make image-root

FROM scratch
ARG REVISION=unknown
COPY --from=build /defragd/target/image/root/ /
ENV PATH=/usr/bin
USER 65532:65532
ENTRYPOINT ["/usr/bin/defragd"]
LABEL org.opencontainers.image.title="defragd" \
      org.opencontainers.image.description="Metrics-driven, safe defragmentation of etcd clusters" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}"
