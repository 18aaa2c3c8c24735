//! Compilers, test runners, build tools and archivers, with the options that a rule for any arguments allows.
//!
//! Data only, of which `risks` makes use. They have so many options that write a chosen file, load a library or run a
//! program, and so many ways to abbreviate them, that the harmless ones are listed: any other option must be
//! spelled out. What is not in these lists is not known to be harmless.

use super::row::{Operands, PROGRAM, Program};

/// Programs of which every option must be spelled out that is not listed.
pub(super) const BUILDERS: &[Program] = &[
    Program {
        names: "gcc g++ cc c++ c89 c99 clang clang++ cpp gfortran",
        begins: "@ -Wl, -Wa, -Wp,",
        free: "-c -S -E -P -C -H -v -w -x -s -g -g0 -g1 -g2 -g3 -pthread -pipe -shared -static -static-libgcc \
            -static-libstdc++ -nostdlib -nostdinc -rdynamic -pedantic -pedantic-errors -ansi -std --std \
            -include -isystem -iquote -idirafter -march -mtune -mcpu -m32 -m64 -fPIC -fpic -fPIE -fpie -pie \
            -no-pie -fsanitize -fopenmp -fvisibility -fexceptions -frtti -fomit-frame-pointer -ffast-math \
            -fwrapv -fstrict-aliasing -ffreestanding -fcommon -fsyntax-only -fdata-sections \
            -ffunction-sections -flto -fdiagnostics-color -fcolor-diagnostics --version --help --verbose",
        free_begins: "-W -O -I -D -U -l -L -ggdb -gdwarf- -fno- -fstack-protector -msse -mavx -mno- -print-",
        ..PROGRAM
    },
    Program {
        names: "ld as",
        begins: "@",
        free: "-r -s -S -g -shared -static --gc-sections --version --help -v -V --warn-common",
        free_begins: "-l -L",
        ..PROGRAM
    },
    Program {
        names: "rustc",
        begins: "@",
        free: "-g -O -v -h -V --edition --crate-type --crate-name --cfg --check-cfg --test --cap-lints --warn \
            --allow --deny --forbid --error-format --color --explain --version --help --verbose",
        free_begins: "-A -W -D -F -l",
        ..PROGRAM
    },
    Program {
        names: "javac",
        begins: "@",
        free: "-g -nowarn -verbose -deprecation -encoding --release -source -target --source --target -version \
            --version -parameters -Werror -proc:none --help -help",
        free_begins: "-Xlint -Xdoclint",
        ..PROGRAM
    },
    Program {
        names: "jar",
        begins: "@",
        free: "--list --file --verbose --describe-module --version --help",
        free_letters: "tvf",
        operands: Operands::Bundle,
        ..PROGRAM
    },
    Program {
        names: "ar ranlib",
        begins: "@",
        free: "--version --help",
        free_letters: "tpvPOV",
        operands: Operands::Bundle,
        ..PROGRAM
    },
    // These load a library by `--plugin`, and read options from `@FILE`.
    Program {
        names: "nm size strings objdump readelf",
        begins: "@ -plugin -load",
        long: "plugin output",
        ..PROGRAM
    },
    Program {
        names: "tsc",
        begins: "@",
        free: "--noEmit -noEmit --strict --pretty --version -v --help -h --listFiles --showConfig --skipLibCheck \
            --target -t --module -m --moduleResolution --esModuleInterop --jsx --lib --noImplicitAny \
            --diagnostics --extendedDiagnostics --traceResolution --allowJs --checkJs --noErrorTruncation \
            --noUnusedLocals --noUnusedParameters",
        ..PROGRAM
    },
    Program {
        names: "go",
        // `run` and `tool` run a program from anywhere, `generate` what comments say.
        words: "run generate install tool telemetry bug",
        free: "-v --v -race --race -short --short -count --count -run --run -bench --bench -benchtime \
            -benchmem -timeout --timeout -parallel -cpu -failfast --failfast -list -json --json -tags --tags \
            -cover --cover -covermode -p -n -x -a -trimpath -vet -shuffle -fullpath -skip --skip -m -u -deps \
            -test -f -compiled -find -h -help --help -l -s -d -e",
        inside: true,
        ..PROGRAM
    },
    Program { names: "gofmt", free: "-l -d -s -e -w -h -help", ..PROGRAM },
    Program {
        names: "cargo",
        begins: "+",
        words: "install uninstall publish login logout owner yank vendor init new",
        free: "-p --package --lib --bins --bin --test --tests --example --examples --bench --benches --all \
            --all-targets --workspace --exclude --no-run --no-fail-fast -F --features --all-features \
            --no-default-features -j --jobs -r --release --profile --message-format -q --quiet -v -vv \
            --verbose --color --frozen --locked --offline -h --help -V --version --list --check --doc \
            --document-private-items --no-deps --keep-going --ignored --include-ignored --nocapture \
            --no-capture --exact --test-threads --skip --show-output --depth --invert -i -e --edges -d \
            --duplicates --dry-run -A -W -D",
        free_begins: "-A -W -D -j -p",
        inside: true,
        ..PROGRAM
    },
    Program {
        names: "pytest py.test",
        begins: "@",
        free: "--lf --last-failed --ff --failed-first --nf --new-first --sw --stepwise --exitfirst --maxfail --tb \
            --co --collect-only --quiet --verbose --durations --durations-min --no-header --no-summary \
            --color --showlocals --capture --deselect --ignore --ignore-glob --markers --fixtures \
            --strict-markers --strict-config --version --help --disable-warnings --runxfail --cache-clear",
        free_letters: "xvqslhV k: m: r: n:",
        inside: true,
        ..PROGRAM
    },
    Program {
        names: "jest vitest mocha ava",
        free: "--ci --verbose --bail -b -t --testNamePattern --runInBand --silent --colors --color --no-color \
            --no-colors --passWithNoTests --listTests --onlyChanged --maxWorkers --detectOpenHandles \
            --forceExit --version --help -h -v --grep -g --fgrep -f --timeout --recursive --exit --parallel \
            --jobs --dry-run --dryRun --check-leaks --forbid-only --forbidOnly --testTimeout --run",
        inside: true,
        ..PROGRAM
    },
    Program {
        names: "make remake bmake",
        free: "--jobs --keep-going --dry-run --just-print --recon --silent --quiet --always-make --ignore-errors \
            --print-directory --no-print-directory --directory --load-average --output-sync \
            --no-builtin-rules --no-builtin-variables --question --trace --print-data-base --version --help \
            --warn-undefined-variables",
        free_letters: "knsBiwrRqdpSv j: l: O: C:",
        operands: Operands::NoAssignments,
        inside: true,
        ..PROGRAM
    },
    Program {
        names: "just",
        free: "-l --list -n --dry-run -q --quiet -v --verbose --summary -s --show --version --help -h -u \
            --unsorted --yes",
        operands: Operands::NoAssignments,
        inside: true,
        ..PROGRAM
    },
    Program {
        names: "rake",
        free: "-T --tasks -n --dry-run -q --quiet -s --silent -v --verbose -t --trace -P --prereqs -D \
            --describe -W --where -m --multitask -j --jobs -h --help -V --version",
        operands: Operands::NoAssignments,
        inside: true,
        ..PROGRAM
    },
    Program {
        names: "cmake",
        free: "--build --target --config --parallel -j --verbose -v --version --help -S -B -N -L -LA \
            --list-presets -Wdev -Wno-dev",
        free_begins: "-j",
        inside: true,
        ..PROGRAM
    },
    Program {
        names: "ctest",
        free: "--output-on-failure -R -E -L -LE -j --parallel -V -VV -N --show-only --rerun-failed --test-dir \
            --timeout --stop-on-failure -Q --quiet --verbose --version --help -C --build-config",
        free_begins: "-j",
        inside: true,
        ..PROGRAM
    },
    Program {
        names: "ninja samu",
        free: "--version --verbose --quiet --help",
        free_letters: "nvh C: j: k: l:",
        inside: true,
        ..PROGRAM
    },
    // Of an archive that is made, its name is the file that is written: only reading one is free.
    Program {
        names: "tar bsdtar",
        free: "--extract --get --list --verbose --file --gzip --gunzip --ungzip --bzip2 --xz --zstd \
            --keep-old-files --strip-components --exclude --exclude-vcs --wildcards --to-stdout \
            --no-same-owner --no-same-permissions --preserve-permissions --touch --auto-compress --version \
            --help",
        free_letters: "txvzjJkpamO f:",
        operands: Operands::Bundle,
        ..PROGRAM
    },
    Program {
        names: "unzip",
        free: "--help --version",
        free_letters: "lvtqnopcjaZ12hz",
        ..PROGRAM
    },
    Program {
        names: "zstd unzstd zstdcat",
        free: "--decompress --test --keep --force --quiet --stdout --rm --ultra --list --verbose --version \
            --help --check --no-check",
        free_letters: "dtlkfqvcz0123456789 T:",
        ..PROGRAM
    },
    Program {
        names: "sort",
        free: "--ignore-leading-blanks --dictionary-order --ignore-case --general-numeric-sort \
            --human-numeric-sort --ignore-nonprinting --month-sort --numeric-sort --random-sort --reverse \
            --version-sort --check --merge --stable --unique --zero-terminated --key --field-separator \
            --buffer-size --parallel --sort --version --help --debug",
        free_letters: "bdfghiMnrRVcCmsuz k: t: S:",
        ..PROGRAM
    },
];
