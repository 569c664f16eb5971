# The server in an image without a shell or package manager, as a user without rights.
#
#   docker build -t amalgam .
#   docker run -p 8080:8080 -e AMALGAM_BOOTSTRAP_KEY=am_… -v amalgam-data:/var/lib/amalgam amalgam

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
ARG AMALGAM_BUILD_COMMIT=
# The caches make a second build quick; the result leaves them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --release -p amalgam \
    && mkdir -p /out/data \
    && cp target/release/amalgam /out/amalgam \
    && strip /out/amalgam

# The C library, libgcc, certificates and time zones.
FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="Amalgam" \
      org.opencontainers.image.description="A Responses server and agent backend over any model" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/amalgam /usr/bin/amalgam
COPY --from=build --chown=65532:65532 /out/data /var/lib/amalgam
COPY deploy/docker/amalgam.toml /etc/amalgam/amalgam.toml
ENV AMALGAM_CONFIG=/etc/amalgam/amalgam.toml \
    AMALGAM_DATA=/var/lib/amalgam
USER 65532:65532
WORKDIR /var/lib/amalgam
VOLUME /var/lib/amalgam
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 CMD ["/usr/bin/amalgam", "health"]
ENTRYPOINT ["/usr/bin/amalgam"]
CMD ["serve"]
