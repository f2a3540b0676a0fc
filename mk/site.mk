# SPDX-License-Identifier: BSD-3-Clause
# The documentation as a site. It needs the network once, for MkDocs; no check needs it.

SITE = $(BUILD)/site
SITE_CC = clang
SITE_VENV = $(SITE)/venv
SITE_HTML = $(SITE)/html/$(VERSION)
SITE_FROM := site/try/codec.c $(wildcard site/try/libc/*.h)
# The codec for the page that tries it. Without a linker for WebAssembly, the page shows a message.
SITE_WASM := $(if $(and $(shell command -v $(SITE_CC)),$(shell command -v wasm-ld)),$(SITE)/codec.wasm)

.PHONY: site site-pages
$(SITE)/codec.wasm: $(SITE_FROM) $(AMALGAMATION)/pici.c
	$(say) WASM $@
	@mkdir -p $(@D)
	$(Q)$(SITE_CC) --target=wasm32 -std=c11 -O2 -mbulk-memory -msign-ext -nostdlib -ffreestanding -Wall -Wextra -Werror \
		-isystem site/try/libc -I$(AMALGAMATION) -Wl,--no-entry -Wl,--strip-all -Wl,-z,stack-size=1048576 \
		-o $@ site/try/codec.c $(AMALGAMATION)/pici.c

site-pages: $(TOOL) $(SITE_WASM)
	$(Q)site/prepare.py --picitool $(TOOL) $(SITE_WASM:%=--wasm %) --html $(SITE_HTML) $(SITE)/pages

$(SITE_VENV)/made: site/requirements.txt
	@mkdir -p $(SITE)
	$(Q)rm -rf $(SITE_VENV) && python3 -m venv $(SITE_VENV) && \
		$(SITE_VENV)/bin/pip install -q --disable-pip-version-check -r site/requirements.txt >$(SITE)/pip.log 2>&1 && \
		touch $@ || { tail -n 3 $(SITE)/pip.log; echo 'SKIPPED: make site needs MkDocs from PyPI, or its own venv'; }

# --strict: a link or an anchor that leads nowhere is an error.
site: site-pages $(SITE_VENV)/made
	$(Q)[ ! -e $(SITE_VENV)/made ] || { PAGES='$(abspath $(SITE)/pages)' HTML='$(abspath $(SITE_HTML))' \
		SITE_NAME='pici $(VERSION)' NO_MKDOCS_2_WARNING=1 \
		$(SITE_VENV)/bin/mkdocs build --quiet --strict -f $(SITE)/pages.yml && \
		echo 'site: $(SITE_HTML)/index.html'; }
##
## Documentation:
##   make site            $(BUILD)/site/html: the documentation as a site (fetches MkDocs from PyPI). To look at it:
##                        python3 -m http.server -d $(BUILD)/site/html
