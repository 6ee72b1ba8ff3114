# Image of the server: the binary and the C library, run as a user that is not root.
# See docs/deployment.md.
#
#     docker build -t slidegate .

# Not the slim one, which lacks the Python for scripts/licences.
FROM rust:1.95-bookworm AS build
WORKDIR /src
# All members of the workspace, because the lock file is about all of them.
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY examples examples
COPY bench bench
COPY testbed testbed
COPY fuzz fuzz
COPY simulation simulation
COPY scripts/licences scripts/licences
ENV CARGO_PROFILE_RELEASE_STRIP=symbols
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --profile dist --locked -p slidegate-server && \
    cp target/dist/slidegate /usr/bin/slidegate && \
    scripts/licences >/THIRD-PARTY-LICENSES.txt && \
    mkdir /state

# Of the same Debian as the one above, so that the C library fits. It has no shell.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /usr/bin/slidegate /usr/bin/slidegate
# For snapshots: an image without a shell cannot make a directory that the user may write to.
COPY --from=build --chown=65532:65532 /state /var/lib/slidegate
COPY packaging/slidegate.toml /etc/slidegate/slidegate.toml
COPY LICENSE-APACHE LICENSE-MIT /usr/share/doc/slidegate/
COPY --from=build /THIRD-PARTY-LICENSES.txt /usr/share/doc/slidegate/
# A number, so that Kubernetes can tell that it is not root.
USER 65532:65532
# The gateway, the decision service, and metrics with health.
EXPOSE 8080 8081 9090
# GET /readyz of the admin endpoint. If that is not on 127.0.0.1:9090, SLIDEGATE_ADMIN says where.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["/usr/bin/slidegate", "health"]
ENTRYPOINT ["/usr/bin/slidegate"]
CMD ["serve", "--config", "/etc/slidegate/slidegate.toml"]
