// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// readMAC parses a unicast MAC address; field is its key.
func readMAC(conf model.PluginConf, field, value string) (state.MAC, error) {
	mac, err := state.ParseMAC(value)
	if err != nil {
		return mac, model.Errorf(model.CodeInvalidConf, "six bytes, for example 02:00:00:00:00:01",
			"plugin %s: %s: %w", conf.Type, field, err)
	}
	if mac.IsZero() || mac[0]&1 != 0 {
		return mac, model.Errorf(model.CodeInvalidConf, "the lowest bit of the first byte must be 0",
			"plugin %s: %s: %s is not a unicast address", conf.Type, field, value)
	}
	return mac, nil
}
