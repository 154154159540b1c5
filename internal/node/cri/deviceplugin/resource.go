// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/plan/plugin"
)

// Domain is the domain of the resources' names, as in macvtap-cni.
const Domain = "macvtap.network.kubevirt.io"

const (
	// defaultCapacity is that of a resource without a configured one, as in macvtap-cni.
	defaultCapacity = 100
	// mostCapacity keeps the list of devices within the 4 MiB of a gRPC message.
	mostCapacity = 10000
)

// Resource is a resource of macvtaps on one of the node's interfaces, with macvtap-cni's keys.
type Resource struct {
	Name        string `json:"name"`
	LowerDevice string `json:"lowerDevice"`
	// Mode is bridge by default.
	Mode string `json:"mode"`
	// Capacity is the number of devices; 0 is 100.
	Capacity int `json:"capacity"`
}

// validName reports whether Kubernetes accepts the part of a resource's name after the domain.
func validName(name string) bool {
	const most = 63
	isAlphanumeric := func(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
	if name == "" || len(name) > most || !isAlphanumeric(name[0]) || !isAlphanumeric(name[len(name)-1]) {
		return false
	}
	for i := range len(name) {
		if !isAlphanumeric(name[i]) && !strings.ContainsRune("-_.", rune(name[i])) {
			return false
		}
	}
	return true
}

// ParseResources parses macvtap-cni's DP_MACVTAP_CONF, a list of resources. The error names all that are invalid; the
// others are returned with it. Nil is no list at all.
func ParseResources(text []byte) ([]Resource, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("want a list of resources, as in macvtap-cni: %w", err)
	}
	out := []Resource{}
	var errs []error
	for i, raw := range list {
		r, err := parseResource(raw)
		if err == nil && slices.ContainsFunc(out, func(o Resource) bool { return o.Name == r.Name }) {
			err = fmt.Errorf("name %q is used twice: remove one of them", r.Name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("[%d]: %w", i, err))
			continue
		}
		out = append(out, r)
	}
	return out, errors.Join(errs...)
}

func parseResource(raw json.RawMessage) (Resource, error) {
	var r Resource
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields() // a misspelled capacity would be the default one
	if err := d.Decode(&r); err != nil {
		return r, err
	}
	if r.Mode == "" {
		r.Mode = "bridge"
	}
	switch {
	case !validName(r.Name):
		return r, fmt.Errorf("name %q is not a resource's name: use letters, digits, '-', '_' and '.'", r.Name)
	case !validLink(r.LowerDevice):
		return r, fmt.Errorf("lowerDevice %q of resource %q is not an interface's name: ip link lists them", r.LowerDevice, r.Name)
	case !slices.Contains(plugin.MacvtapModes(), r.Mode):
		return r, fmt.Errorf("mode %q of resource %q is not one of %s", r.Mode, r.Name, strings.Join(plugin.MacvtapModes(), ", "))
	case r.Capacity < 0 || r.Capacity > mostCapacity:
		return r, fmt.Errorf("capacity %d of resource %q is not between 1 and %d", r.Capacity, r.Name, mostCapacity)
	case r.Capacity == 0:
		r.Capacity = defaultCapacity
	}
	return r, nil
}

// validLink reports whether a name can be an interface's.
func validLink(name string) bool {
	const most = 15 // IFNAMSIZ, less the final zero
	return name != "" && len(name) <= most && name != "." && name != ".." && !strings.ContainsAny(name, "/: \t\n\x00")
}

// ofLinks returns a resource for each of the interfaces, as macvtap-cni has them without a configuration.
func ofLinks(links []string) []Resource {
	var out []Resource
	for _, name := range links {
		if validName(name) {
			out = append(out, Resource{Name: name, LowerDevice: name, Mode: "bridge", Capacity: defaultCapacity})
		}
	}
	return out
}

// devices returns the resource's devices on a node, with distinct indexes.
func (r Resource) devices(node string) []plugin.MacvtapDevice {
	out := make([]plugin.MacvtapDevice, 0, r.Capacity)
	used := map[int]bool{}
	for i := 0; len(out) < r.Capacity; i++ {
		index := plugin.MacvtapIndex(node, r.Name, i)
		if used[index] {
			continue
		}
		used[index] = true
		out = append(out, plugin.MacvtapDevice{Index: index, Mode: r.Mode, Lower: r.LowerDevice})
	}
	return out
}
