# SPDX-License-Identifier: BSD-3-Clause
# The filter for HDF5, a plugin of its own in a folder of its own, since libhdf5 loads all that HDF5_PLUGIN_PATH has.
# Needs the headers of HDF5 1.10 or later, and is not linked with it.

H5DIR = $(BUILD)/hdf5
H5_SO = $(H5DIR)/libpici_h5.so
H5_OBJ := $(call obj,$(sort $(wildcard plugins/hdf5/*.c)))
H5_INCLUDES = $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags-only-I hdf5 2>/dev/null))

.PHONY: hdf5
hdf5: $(H5_SO)

$(H5_OBJ): private override CPPFLAGS += $(H5_INCLUDES)

# With libpici inside, none of whose names it exports.
$(H5_SO): $(H5_OBJ) $(PICI_A)
	@mkdir -p $(@D)
	$(call link,$(LINK) -shared -Wl$(comma)--exclude-libs$(comma)ALL,$(PICI_LIBS) -ldl)

##   make hdf5            $(BUILD)/hdf5/libpici_h5.so, a filter that HDF5 loads by HDF5_PLUGIN_PATH; needs libhdf5-dev
