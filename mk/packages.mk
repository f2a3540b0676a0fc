# SPDX-License-Identifier: BSD-3-Clause
# Packages for Debian and its descendants; wheels of the Python package for many Linux systems.

WHEELS = x86_64 aarch64

.PHONY: deb check-deb wheels check-wheels
deb:
	@tools/dev/deb $(BUILD)/deb

check-deb:
	@tests/package/packages $(BUILD)/packages

wheels:
	@tools/dev/wheels $(BUILD)/wheels $(WHEELS)

check-wheels: wheels
	@tests/package/wheels $(BUILD)/wheels $(WHEELS)
##   make deb             Debian packages in $(BUILD)/deb; check-deb: lintian, and try them in a chroot (root)
##   make wheels          Python wheels for Linux (glibc 2.17 or later) in $(BUILD)/wheels, for WHEELS='x86_64 aarch64'
##   make check-wheels    install and test them with the Pythons of an old and a new release of Debian (root)
