// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Chain is a network configuration list under test.
type Chain struct {
	Name string // the file's name without its extension
	list map[string]any

	// multus reports whether the agent is called by the plugin type multus; extra is the number of additional networks.
	multus bool
	extra  int
}

// ParseChain parses a configuration list; file is used in errors and for the chain's name.
func ParseChain(file string, b []byte) (Chain, error) {
	c := Chain{Name: strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))}
	if err := json.Unmarshal(b, &c.list); err != nil {
		return c, model.Errorf(model.CodeDecode, "name a CNI configuration list with --chain", "chain %s: %w", file, err)
	}
	if plugins, ok := c.list["plugins"].([]any); !ok || len(plugins) == 0 {
		return c, model.Errorf(model.CodeInvalidConf, "name a configuration list with plugins with --chain",
			"chain %s: plugins is missing or empty", file)
	}
	if name, _ := c.list["name"].(string); name == "" {
		return c, model.Errorf(model.CodeInvalidConf, "set name in the list", "chain %s: name is missing", file)
	}
	return c, nil
}

// standaloneList returns the list for a runtime that executes the plugins directly, with host-local's files below dir.
func (c Chain) standaloneList(dir string) ([]byte, error) {
	b, err := json.Marshal(c.list)
	if err != nil {
		return nil, fmt.Errorf("chain %s: %w", c.Name, err)
	}
	list := map[string]any{}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("chain %s: %w", c.Name, err)
	}
	plugins, _ := list["plugins"].([]any)
	for _, p := range plugins {
		object, _ := p.(map[string]any)
		if ipam, ok := object["ipam"].(map[string]any); ok && ipam["type"] == "host-local" {
			ipam["dataDir"] = filepath.Join(dir, "networks")
		}
	}
	b, err = json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("chain %s: %w", c.Name, err)
	}
	return b, nil
}

// agentList returns the list for the agent: one weft-cni plugin whose delegates are the chain and the additional
// networks.
func (c Chain) agentList(dir, socket string) ([]byte, error) {
	delegates, err := c.delegates(dir)
	if err != nil {
		return nil, err
	}
	shim := map[string]any{"type": "weft-cni", "socket": socket, "delegates": delegates}
	if c.multus {
		shim["type"] = "multus"
	}
	if caps := c.capabilities(); len(caps) > 0 {
		shim["capabilities"] = caps
	}
	list := map[string]any{"cniVersion": c.list["cniVersion"], "name": c.list["name"], "plugins": []any{shim}}
	b, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("chain %s: %w", c.Name, err)
	}
	return b, nil
}

// has reports whether the chain contains a plugin of the type.
func (c Chain) has(typ string) bool {
	plugins, _ := c.list["plugins"].([]any)
	return slices.ContainsFunc(plugins, func(p any) bool {
		object, _ := p.(map[string]any)
		return object["type"] == typ
	})
}

// begins reports whether the first plugin of the chain is of the type.
func (c Chain) begins(typ string) bool {
	plugins, _ := c.list["plugins"].([]any)
	first, _ := plugins[0].(map[string]any)
	return first["type"] == typ
}

// capabilities returns the capabilities declared by the plugins of the chain.
func (c Chain) capabilities() map[string]bool {
	out := map[string]bool{}
	plugins, _ := c.list["plugins"].([]any)
	for _, p := range plugins {
		object, _ := p.(map[string]any)
		declared, _ := object["capabilities"].(map[string]any)
		for name, on := range declared {
			if on == true {
				out[name] = true
			}
		}
	}
	return out
}

// capabilityArgs returns a pod's runtime configuration as the kubelet provides it: two host ports that no other pod of
// the world uses, and bandwidth limits. libcni passes on what the chain declares.
func capabilityArgs(serial int) map[string]any {
	const first, ports = 1024, 30000
	port := func(i int) map[string]any {
		return map[string]any{"hostPort": first + (2*serial+i)%ports, "containerPort": 8080 + i, "protocol": "tcp"}
	}
	return map[string]any{
		"portMappings": []any{port(0), port(1)},
		"bandwidth": map[string]any{
			"ingressRate": 100_000_000, "ingressBurst": 8_000_000, "egressRate": 100_000_000, "egressBurst": 8_000_000,
		},
	}
}
