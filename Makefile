# quasar: `make demo` and `make check` do all the set-up by themselves. `make help` lists the targets.
#
#   V=1       show whole command lines
#   DEBUG=1   with AddressSanitizer and UndefinedBehaviorSanitizer, in build/debug
#   CC=clang  another compiler (give it a BUILD of its own)
#   FUZZER=1  as DEBUG=1, for libFuzzer, in build/fuzz (clang only)

PREFIX  ?= /usr/local
BUILD   ?= build$(if $(FUZZER),/fuzz,$(if $(DEBUG),/debug))
CFLAGS  ?= $(if $(DEBUG),-O1 -g,-O2 -g)
VERSION := $(shell sed -n 's/.*QUASAR_VERSION "\(.*\)"/\1/p' lib/base/version.h)

comma    := ,
SANITIZE := $(if $(DEBUG)$(FUZZER),address$(comma)undefined)

override CFLAGS += -std=gnu11 -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wno-unknown-warning-option -Wno-format-truncation \
	$(if $(SANITIZE),-Wno-pass-failed) \
	-fopenmp -fno-math-errno -D_GNU_SOURCE -Ilib -I. -Ikernels -I$(BUILD) \
	$(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer) \
	$(if $(FUZZER),-fsanitize=fuzzer-no-link)
# gcc's OpenMP is linked into the binary, so that its settings can be made before it starts (lib/cpu/cpu.c)
OPENMP := $(if $(findstring clang,$(shell $(CC) --version)),,$(filter /%,$(shell $(CC) -print-file-name=libgomp.a)))
override LDFLAGS += $(if $(OPENMP),,-fopenmp) -Wl,--as-needed $(if $(SANITIZE),-fsanitize=$(SANITIZE))
LDLIBS  := $(OPENMP) -lcurl -lgit2 -lcjson -lsqlite3 -lmicrohttpd -lsodium -ldl -lpthread -lm

# The instruction sets that numeric kernels are compiled for; which one runs is chosen at run time.
KERNELS           := baseline $(if $(findstring x86_64,$(shell $(CC) -dumpmachine)),x86_64_v3 x86_64_v4 x86_64_amx)
KERNEL_FLAGS      := -O3
FLAGS_x86_64_v3   := -march=x86-64-v3
FLAGS_x86_64_v4   := -march=x86-64-v4 -mprefer-vector-width=512
FLAGS_x86_64_amx  := $(FLAGS_x86_64_v4) -mavx512bf16 -mamx-tile -mamx-bf16
KERNEL_SOURCES    := $(wildcard lib/*/kernel.c lib/*/*/kernel.c)
AMX_SOURCES       := $(wildcard lib/*/amx.c lib/*/*/amx.c)
KERNEL_OBJECTS    := $(foreach kernel,$(KERNELS),$(patsubst %.c,$(BUILD)/%.$(kernel).o, \
	$(if $(filter %_amx,$(kernel)),$(AMX_SOURCES),$(KERNEL_SOURCES))))

LIB_SOURCES  := $(filter-out %/kernel.c %/amx.c,$(wildcard lib/*/*.c lib/*/*/*.c))
CMD_SOURCES  := $(wildcard cmd/*.c cmd/*/*.c)
UNIT_SOURCES := $(wildcard tests/unit/test_*.c)
UNIT_TESTS   := $(UNIT_SOURCES:tests/unit/%.c=$(BUILD)/tests/%)
FUZZ_SOURCES := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_TARGETS := $(FUZZ_SOURCES:tests/fuzz/%.c=$(BUILD)/tests/%)
LIB_OBJECTS  := $(LIB_SOURCES:%.c=$(BUILD)/%.o) $(KERNEL_OBJECTS)
OBJECTS      := $(LIB_OBJECTS) $(CMD_SOURCES:%.c=$(BUILD)/%.o)
QUASAR       := $(BUILD)/quasar

# for targets that build before they run: all cores, unless -j says otherwise
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

# `make V=1` shows commands; otherwise a short line each
say = $(if $(V),,@printf '  %-8s%s\n' '$(1)' '$(2)';)

all: $(QUASAR)

$(QUASAR): $(CMD_SOURCES:%.c=$(BUILD)/%.o) $(BUILD)/libquasar.a
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/libquasar.a: $(LIB_OBJECTS)
	$(call say,AR,$@)rm -f $@ && $(AR) qcs $@ $^

$(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

# what everything is compared with: plain C, in which checks spend most of their time
$(filter %/reference.o,$(LIB_OBJECTS)): override CFLAGS += -O3

define kernel_rule
$(BUILD)/%.$(1).o: %.c $(BUILD)/flags
	@mkdir -p $$(@D)
	$$(call say,CC,$$< ($(1)))$$(CC) $$(CFLAGS) $(KERNEL_FLAGS) $(FLAGS_$(1)) -DKERNEL=$(1) -MMD -MP -c -o $$@ $$<
endef
$(foreach kernel,$(KERNELS),$(eval $(call kernel_rule,$(kernel))))

# rebuilds everything when the compiler or its flags change
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(CFLAGS)' | cmp -s - $@ || echo '$(CC) $(CFLAGS)' >$@

-include $(OBJECTS:.o=.d)

# files that EMBED takes in
$(BUILD)/lib/key/mnemonic.o: lib/key/english.txt
$(BUILD)/lib/cli/completion.o: $(wildcard completions/*)
$(BUILD)/lib/space/launcher.o: $(wildcard templates/workspace/*)
$(BUILD)/lib/gpu/compile.o: $(wildcard kernels/*/*)
$(BUILD)/lib/probe/python.o: lib/probe/python.py lib/probe/import.py
$(BUILD)/lib/probe/probe.o: lib/probe/probe.py
$(BUILD)/lib/tune/triton.o: lib/tune/triton.py
$(BUILD)/lib/tune/results.o: lib/tune/shipped.json
$(BUILD)/lib/fork/python_ast.o: lib/fork/python_ast.py
$(BUILD)/lib/web/html.o: $(wildcard templates/page/*)
$(BUILD)/lib/fork/triton_source.o: lib/fork/triton_source.py

# What `quasar init` and `quasar export` write: files as they are, and beside their Python the kernels that it runs.
# FORK_FILES and OPS_FILES list path and source.
FORK_SOURCES := $(shell find fork -type f -not -name '*.pyc' | sort)
FORK_KERNELS := $(wildcard kernels/common/*.h kernels/common/*.cuh kernels/quasar/*.h kernels/quasar/*.cuh kernels/layer/*) \
	kernels/quasar/chunk.cu kernels/quasar/gradient.cu
OPS_SOURCES  := $(sort $(wildcard quasar_ops/*.py quasar_ops/*.cu) fork/fla/ops/quasar/loader.py)
OPS_KERNELS  := $(wildcard kernels/common/*.h kernels/common/*.cuh kernels/linear/* kernels/flash/*)
FORK_FILES   := $(foreach file,$(FORK_SOURCES),$(patsubst gitignore,.gitignore,$(file:fork/%=%))=$(file)) \
	$(foreach file,$(FORK_KERNELS),fla/ops/quasar/$(file)=$(file))
OPS_FILES    := $(foreach file,$(OPS_SOURCES),quasar_ops/$(notdir $(file))=$(file)) \
	$(foreach file,$(OPS_KERNELS),quasar_ops/$(file)=$(file))

# rewritten when a file comes or goes
$(BUILD)/fork_files.h: FORCE
	@mkdir -p $(@D)
	@{ n=0; list() { echo "#define $$1(_) \\"; shift; for pair; do n=$$((n + 1)); \
		echo "	_(fork_file_$$n, \"$${pair%%=*}\", \"$${pair#*=}\") \\"; done; echo; }; \
		list FORK_FILES $(FORK_FILES); list OPS_FILES $(OPS_FILES); } >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

$(BUILD)/lib/fork/template.o: $(BUILD)/fork_files.h $(FORK_SOURCES) $(FORK_KERNELS) $(OPS_SOURCES) $(OPS_KERNELS)

# the fork as `quasar init` writes it, and quasar_ops as `quasar export --ops` does
$(BUILD)/fork: FILES := $(FORK_FILES)
$(BUILD)/fork: $(FORK_SOURCES) $(FORK_KERNELS)
$(BUILD)/ops: FILES := $(OPS_FILES)
$(BUILD)/ops: $(OPS_SOURCES) $(OPS_KERNELS)
$(BUILD)/fork $(BUILD)/ops: $(BUILD)/fork_files.h
	$(call say,FORK,$@)rm -rf $@ && for pair in $(FILES); do install -D -m 644 "$${pair#*=}" "$@/$${pair%%=*}" || exit; done && touch $@

# What the tables of commands and settings say; tracked, and `make check` fails when they are stale.
documents: $(QUASAR)
	$(call say,DOCS,.env.example man)$(QUASAR) generate env >.env.example && \
	rm -rf man && mkdir man && $(QUASAR) generate man man

# --- benchmarks ------------------------------------------------------------------------------------

BENCH_OBJECTS := $(BUILD)/bench/bench.o $(KERNELS:%=$(BUILD)/bench/recurrence.%.o)

$(BUILD)/bench/bench: $(BENCH_OBJECTS) $(BUILD)/libquasar.a
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

-include $(BENCH_OBJECTS:.o=.d)

bench: deps
	@$(MAKE) --no-print-directory $(JOBS) $(BUILD)/bench/bench
	@$(BUILD)/bench/bench

# --- tests -----------------------------------------------------------------------------------------

$(BUILD)/tests/%: tests/unit/%.c $(BUILD)/libquasar.a
	@mkdir -p $(@D)
	$(call say,CCLD,$@)$(CC) $(CFLAGS) -MMD -MP -MF $@.d -o $@ $< $(BUILD)/libquasar.a $(LDFLAGS) \
		-lcmocka $(LDLIBS)

-include $(UNIT_TESTS:%=%.d)

unit-tests: $(UNIT_TESTS)

# with libFuzzer, or with a main function that runs the kept inputs
$(BUILD)/tests/fuzz_%: tests/fuzz/fuzz_%.c tests/fuzz/fuzz.h tests/fuzz/main.c $(BUILD)/libquasar.a
	@mkdir -p $(@D)
	$(call say,CCLD,$@)$(CC) $(CFLAGS) -MMD -MP -MF $@.d -o $@ $< $(if $(FUZZER),-fsanitize=fuzzer,tests/fuzz/main.c) \
		$(BUILD)/libquasar.a $(LDFLAGS) $(LDLIBS)

-include $(FUZZ_TARGETS:%=%.d)

fuzz-targets: $(FUZZ_TARGETS)

# looks for new inputs that break something; what it learns stays in build/fuzz/corpus
FUZZ_SECONDS ?= 10
fuzz: deps
	@scripts/install-packages clang libclang-rt-dev libomp-dev
	@$(MAKE) --no-print-directory $(JOBS) CC=clang FUZZER=1 fuzz-targets
	@scripts/fuzz $(FUZZ_SECONDS)

$(BUILD)/bench-%: bench/%.c $(BUILD)/libquasar.a
	$(call say,CCLD,$@)$(CC) $(CFLAGS) -MMD -MP -MF $@.d -o $@ $< $(BUILD)/libquasar.a $(LDFLAGS) $(LDLIBS)

# build anywhere, run where there is a GPU
TESTS_GPU := $(BUILD)/tests-gpu $(BUILD)/tests-gpu-gradient $(BUILD)/tests-gpu-linear $(BUILD)/tests-gpu-model
$(BUILD)/tests-gpu: tests/gpu/kernels.c
$(BUILD)/tests-gpu-gradient: tests/gpu/gradient.c
$(BUILD)/tests-gpu-linear: tests/gpu/linear.c
$(BUILD)/tests-gpu-model: tests/gpu/model.c
$(TESTS_GPU): $(BUILD)/libquasar.a
	$(call say,CCLD,$@)$(CC) $(CFLAGS) -MMD -MP -MF $@.d -o $@ $(filter %.c,$^) $(BUILD)/libquasar.a $(LDFLAGS) \
		-lcmocka $(LDLIBS)

# An emulated GPU: in LD_LIBRARY_PATH, it is what the binary takes for NVIDIA's driver. It runs where it is built.
EMULATOR         := $(BUILD)/emulator/libcuda.so.1
EMULATOR_OBJECTS := $(patsubst %.c,$(BUILD)/emulator/%.o,$(wildcard tests/emulator/*.c) \
			$(addprefix lib/base/,buffer.c error.c memory.c text.c))

$(BUILD)/emulator/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS) -O3 -march=native -fPIC -fvisibility=hidden -fwrapv -fno-strict-aliasing \
		-MMD -MP -c -o $@ $<

$(EMULATOR): $(EMULATOR_OBJECTS)
	$(call say,LD,$@)$(CC) -shared -Wl,-z,defs,-soname,$(@F) $(LDFLAGS) -o $@ $^ -lpthread -lm

emulator: $(EMULATOR)

-include $(EMULATOR_OBJECTS:.o=.d)

# they may be copied into a folder that `make dist` made, whose libraries they then use
$(TESTS_GPU) $(BUILD)/bench-gpu $(BUILD)/bench-model: override LDFLAGS += -Wl,-rpath,'$$ORIGIN/../lib'

# preloaded by the tests that kill a command at its every step
$(BUILD)/fault.so: tests/fault/fault.c
	@mkdir -p $(@D)
	$(call say,CCLD,$@)$(CC) -std=gnu11 -O2 -Wall -Wextra -Werror -D_GNU_SOURCE -shared -fPIC -o $@ $< -ldl

-include $(BUILD)/bench-localnet.d $(BUILD)/bench-model.d $(BUILD)/bench-gpu.d $(TESTS_GPU:%=%.d)

# a minute of 500 commits a second from 64 connections
bench-localnet: $(QUASAR) $(BUILD)/bench-localnet
	@$(BUILD)/bench-localnet $(QUASAR) 60 64 500

# a language model of Qwen2.5-0.5B's shape: 1 GB of memory, and 1 GB of TMPDIR; DEVICE=cuda measures it on a GPU
bench-model: $(BUILD)/bench-model
	@$(BUILD)/bench-model $(DEVICE)

bench-gpu: $(BUILD)/bench-gpu
	@$(BUILD)/bench-gpu

# 24 simulated hours of `quasar run` with a fault a minute, in two hours; SOAK="1 0.5" is one hour in 2.5 min; SOAK="--like 2026-04" is a day in April
soak: $(QUASAR)
	@scripts/soak $(QUASAR) $(SOAK)

# 10,000 requests to `quasar serve`, one in twenty of them malformed
soak-serve: $(QUASAR)
	@scripts/soak-serve $(QUASAR) $(SOAK)

# the container image of the inference server: built, pushed, and run as validators do
check-image: deps
	@scripts/install-packages podman buildah runc containernetworking-plugins docker-registry
	@$(MAKE) --no-print-directory $(JOBS) all
	@QUASAR=$(abspath $(QUASAR)) /usr/bin/python3 -m pytest -q -rs tests/image

# unit tests run with the sanitizers, everything else on the binary as users get it
check: deps
	@$(MAKE) --no-print-directory $(JOBS) all $(TESTS_GPU) $(EMULATOR) $(BUILD)/fault.so \
		$(BUILD)/tests/test_gpu
	@$(MAKE) --no-print-directory $(JOBS) DEBUG=1 unit-tests fuzz-targets
	@tests/run

# what `make check` leaves out, for it takes long
check-long: deps
	@$(MAKE) --no-print-directory $(JOBS) all $(TESTS_GPU) $(EMULATOR) $(BUILD)/fault.so
	@tests/run --long

# the pages in a real browser, which this installs
check-pages: deps
	@scripts/install-packages chromium fonts-dejavu-core
	@$(MAKE) --no-print-directory $(JOBS) all
	@CHROMIUM=$$(command -v chromium) QUASAR=$(abspath $(QUASAR)) /usr/bin/python3 -m pytest -q tests/cli/test_pages.py

# the command-line tests once more, with the sanitizers in the binary
check-sanitized: deps
	@$(MAKE) --no-print-directory $(JOBS) all
	@$(MAKE) --no-print-directory $(JOBS) DEBUG=1 build/debug/quasar build/debug/fault.so
	@scripts/check-sanitized

# kill -9, failing disks, cut answers and every kind of wrong answer at every point there is; `make check` tries a sample of them
sweep: deps
	@$(MAKE) --no-print-directory $(JOBS) all $(BUILD)/fault.so
	@SWEEP=full QUASAR=$(abspath $(QUASAR)) /usr/bin/python3 -m pytest -q \
		tests/cli/test_faults.py tests/cli/test_recover.py tests/cli/test_hostile.py \
		tests/cli/test_sweep.py

# both packages: made, inspected, installed and run where nothing else is
check-packages: deps
	@scripts/install-packages lintian mmdebstrap
	@$(MAKE) --no-print-directory $(JOBS) dist deb
	@/usr/bin/python3 -m pytest -q tests/packages

demo: deps
	@$(MAKE) --no-print-directory $(JOBS) all
	@scripts/demo $(abspath $(QUASAR))

# --- installing ------------------------------------------------------------------------------------

BINDIR  := $(DESTDIR)$(PREFIX)/bin
SHARE   := $(DESTDIR)$(PREFIX)/share
ZSH_COMPLETIONS ?= zsh/site-functions
MANUALS := $(wildcard man/*.1)

install: all
	install -D -m 755 $(QUASAR) $(BINDIR)/quasar
	install -d $(SHARE)/man/man1
	install -m 644 $(MANUALS) $(SHARE)/man/man1
	install -D -m 644 completions/quasar.bash $(SHARE)/bash-completion/completions/quasar
	install -D -m 644 completions/quasar.zsh $(SHARE)/$(ZSH_COMPLETIONS)/_quasar
	install -D -m 644 completions/quasar.fish $(SHARE)/fish/vendor_completions.d/quasar.fish

uninstall:
	rm -f $(BINDIR)/quasar $(MANUALS:man/%=$(SHARE)/man/man1/%) \
		$(SHARE)/bash-completion/completions/quasar $(SHARE)/$(ZSH_COMPLETIONS)/_quasar \
		$(SHARE)/fish/vendor_completions.d/quasar.fish

# a folder, and a tarball of it, that runs on other glibc distributions
dist: all
	+$(call say,DIST,dist/quasar-$(VERSION))scripts/make-dist $(BUILD) dist/quasar-$(VERSION)

# dist/quasar_VERSION_ARCHITECTURE.deb; what its making leaves in debian/ is in .gitignore
deb: all
	@scripts/install-packages debhelper
	@mkdir -p dist
	+$(call say,DEB,dist/quasar_$(VERSION))rm -rf $(DEB_TREE) && debian/rules binary $(if $(V),,>$(BUILD)/deb.log 2>&1) \
		|| { $(if $(V),,cat $(BUILD)/deb.log;) exit 1; }

DEB_TREE := debian/quasar debian/.debhelper debian/debhelper-build-stamp debian/files \
	debian/quasar.debhelper.log debian/quasar.substvars

# --- set-up ----------------------------------------------------------------------------------------

deps:
	@scripts/install-packages

clean:
	rm -rf build dist $(DEB_TREE)

help:
	@echo 'make              the binary build/quasar'
	@echo 'make demo         a whole miner journey on this machine, nothing faked'
	@echo 'make check        the tests, but for those that take long'
	@echo 'make check-long   those: kills at every step, forks that sin, all kernels on an emulated Hopper'
	@echo 'make check-pages  the pages in a real browser: chromium is installed for it'
	@echo 'make check-sanitized  the tests of the commands, with sanitizers in the binary'
	@echo 'make emulator     an emulated GPU, on which `make check` tests the kernels where there is no other'
	@echo 'make check-image  the tests of the container image, with podman and buildah, and docker where it runs'
	@echo 'make sweep        faults injected at every point of commit, reveal and submit'
	@echo 'make fuzz         new inputs for the parsers, FUZZ_SECONDS=10 for each of them'
	@echo 'make bench        the speed of the operation and the layer on this machine'
	@echo 'make bench-localnet   durable commits a second that `quasar localnet` takes'
	@echo 'make bench-model      a language model on the CPU, or with DEVICE=cuda on a GPU, beside what its memory allows; 2 GB'
	@echo 'make bench-gpu        the kernels on this GPU, beside what its memory allows'
	@echo 'make soak         a simulated day of `quasar run` with a fault a minute: two hours'
	@echo 'make soak-serve   10,000 requests to the inference server, some of them malformed'
	@echo 'make install      to PREFIX ($(PREFIX)), below DESTDIR if given'
	@echo 'make uninstall    remove what `make install` put there'
	@echo 'make dist         a relocatable folder and tarball under dist/'
	@echo 'make deb          a Debian package under dist/'
	@echo 'make check-packages   what `make dist` and `make deb` make, installed and run in a clean root'
	@echo 'make documents    man pages and .env.example, from the tables of commands and settings'
	@echo 'make deps         install the Debian packages that are missing'
	@echo 'make clean        remove build/ and dist/'

FORCE:
.PHONY: all documents unit-tests fuzz-targets emulator fuzz check check-image check-long check-packages check-pages check-sanitized sweep demo bench bench-localnet bench-model bench-gpu soak soak-serve install uninstall dist deb deps clean help FORCE
.DELETE_ON_ERROR:
.SUFFIXES:
