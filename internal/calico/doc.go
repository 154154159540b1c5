// SPDX-License-Identifier: Apache-2.0

// Package calico reads Calico's objects about addresses and turns them into the model's values: IPPool, IPReservation,
// IPAMConfig (IPAMConfiguration) and IPAMBlock, as crd.projectcalico.org/v1 and as projectcalico.org/v3. Both groups
// have the same fields. It never writes Calico's objects.
package calico

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// Group is one of the API groups that Calico's objects are found in.
type Group struct {
	Pools, Reservations, Configurations, Blocks store.Kind
}

// Groups returns those groups. Where Calico's API server runs, both have the same objects.
func Groups() []Group {
	group := func(name, version, configuration, configurations string) Group {
		return Group{
			Pools:          store.Kind{Group: name, Version: version, Kind: "IPPool", Resource: "ippools"},
			Reservations:   store.Kind{Group: name, Version: version, Kind: "IPReservation", Resource: "ipreservations"},
			Configurations: store.Kind{Group: name, Version: version, Kind: configuration, Resource: configurations},
			Blocks:         store.Kind{Group: name, Version: version, Kind: "IPAMBlock", Resource: "ipamblocks"},
		}
	}
	return []Group{
		group("crd.projectcalico.org", "v1", "IPAMConfig", "ipamconfigs"),
		group("projectcalico.org", "v3", "IPAMConfiguration", "ipamconfigurations"),
	}
}

// invalid returns the error for an invalid object of Calico's.
func invalid(o store.Object, hint, format string, args ...any) error {
	return model.Errorf(model.CodeInvalidConf, hint, "%s (%s): %w", o.Key, o.Key.Group, fmt.Errorf(format, args...))
}

func decode(o store.Object, into any) error {
	if err := json.Unmarshal(o.Raw, into); err != nil {
		return model.Errorf(model.CodeDecode, "compare with Calico's reference", "%s (%s): %w", o.Key, o.Key.Group, err)
	}
	return nil
}

func prefix(o store.Object, field, text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return p, invalid(o, `write for example "10.244.0.0/16"`, "%s %q is no prefix", field, text)
	}
	return p.Masked(), nil
}
