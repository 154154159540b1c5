// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"reflect"

	"github.com/weft-net/weft/internal/cni"
)

// Service meshes (istio-cni, linkerd-cni) chain their plugin by adding it to the runtime's first configuration file,
// and add it again whenever it is not there. They write the whole file again, with its keys in another order.

// withChained returns the agent's conflist with the plugins that other programs have added behind weft-cni in the
// present file, or the present file itself if it has nothing else. A file that is no list of weft's has no such plugins.
func withChained(want, have []byte) ([]byte, error) {
	wanted, plugins, ok := split(want)
	if !ok {
		return want, nil
	}
	present, others, ok := split(have)
	if !ok || len(others) < 2 {
		return want, nil
	}
	if reflect.DeepEqual(wanted, present) && sameJSON(plugins[0], others[0]) {
		return have, nil
	}
	wanted["plugins"] = append(plugins[:1], others[1:]...)
	b, err := json.MarshalIndent(wanted, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// split returns a list's keys without its plugins, and its plugins, of which the first is weft-cni.
func split(b []byte) (list map[string]any, plugins []json.RawMessage, ok bool) {
	var own struct {
		Plugins []json.RawMessage `json:"plugins"`
	}
	var first struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(b, &list) != nil || json.Unmarshal(b, &own) != nil || len(own.Plugins) == 0 ||
		json.Unmarshal(own.Plugins[0], &first) != nil || first.Type != cni.ShimType {
		return nil, nil, false
	}
	delete(list, "plugins")
	return list, own.Plugins, true
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
