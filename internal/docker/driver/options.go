// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/docker/cnm"
	"github.com/weft-net/weft/internal/model"
)

// options are those of docker network create -o.
type options struct {
	// Network is the NetworkAttachmentDefinition, as namespace/name; empty is the cluster's network.
	Network string `json:"network,omitempty"`
	// Namespace is the namespace in which policies select the containers.
	Namespace string `json:"namespace"`
	// Pool names pools of the cluster.
	Pool []string `json:"pool,omitempty"`
	// MTU of the interfaces in bytes; 0: the network's.
	MTU int `json:"mtu,omitempty"`
}

// The bounds of an MTU: the smallest of IPv4, and the largest of a link.
const (
	minMTU = 68
	maxMTU = 65535
)

const optionsHint = "the options are network=NAMESPACE/NAME, namespace=NAME, pool=NAME and mtu=BYTES"

// parseOptions parses and validates the options of CreateNetwork.
func parseOptions(all map[string]any) (options, error) {
	out := options{Namespace: "default"}
	if internal, _ := all[cnm.OptionInternal].(bool); internal {
		return out, model.Errorf(model.CodeInvalidConf, "leave it out, and create a NetworkPolicy for the containers",
			"--internal is not supported")
	}
	generic, _ := all[cnm.OptionGeneric].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(generic)) {
		value, ok := generic[key].(string)
		if !ok {
			return out, model.Errorf(model.CodeInvalidConf, optionsHint, "option %s: %v is no text", key, generic[key])
		}
		if err := out.set(key, value); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (o *options) set(key, value string) error {
	switch key {
	case "network":
		namespace, name, ok := strings.Cut(value, "/")
		if !ok || model.CheckName("option network:", namespace) != nil || model.CheckName("option network:", name) != nil {
			return model.Errorf(model.CodeInvalidConf, "name a NetworkAttachmentDefinition as namespace/name",
				"option network: %q", value)
		}
		o.Network = value
	case "namespace":
		if err := model.CheckName("option namespace:", value); err != nil {
			return fmt.Errorf("%w", err)
		}
		o.Namespace = value
	case "pool":
		o.Pool = strings.Split(value, ",")
		for _, name := range o.Pool {
			if err := model.CheckName("option pool:", name); err != nil {
				return fmt.Errorf("%w", err)
			}
		}
	case "mtu", cnm.OptionMTU:
		mtu, err := strconv.Atoi(value)
		if err != nil || mtu < minMTU || mtu > maxMTU {
			return model.Errorf(model.CodeInvalidConf, "a number of bytes from 68 to 65535", "option %s: %q", key, value)
		}
		o.MTU = mtu
	default:
		return model.Errorf(model.CodeInvalidConf, optionsHint, "option %s: unknown", key)
	}
	return nil
}
