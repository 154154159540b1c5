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
	Name string // the file's name without its ending
	list map[string]any

	// several is whether the pods have further networks, of which weft takes care under the name of Multus; further is how
	// many.
	several bool
	further int
}

// ParseChain reads a configuration list; file is named in errors and gives the chain its name.
func ParseChain(file string, b []byte) (Chain, error) {
	c := Chain{Name: strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))}
	if err := json.Unmarshal(b, &c.list); err != nil {
		return c, model.Faultf(model.CodeDecode, "give --chain a CNI configuration list", "chain %s: %w", file, err)
	}
	if plugins, ok := c.list["plugins"].([]any); !ok || len(plugins) == 0 {
		return c, model.Faultf(model.CodeInvalidConf, "give --chain a list with plugins",
			"chain %s: plugins is missing or empty", file)
	}
	if name, _ := c.list["name"].(string); name == "" {
		return c, model.Faultf(model.CodeInvalidConf, "give the list a name", "chain %s: name is missing", file)
	}
	return c, nil
}

// direct is the list for a runtime that executes the plugins itself, with host-local's files below dir.
func (c Chain) direct(dir string) ([]byte, error) {
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

// throughAgent is the list in the agent's form: one weft-cni object whose delegates are the chain and the further
// networks.
func (c Chain) throughAgent(dir, socket string) ([]byte, error) {
	delegates, err := c.delegates(dir)
	if err != nil {
		return nil, err
	}
	shim := map[string]any{"type": "weft-cni", "socket": socket, "delegates": delegates}
	if c.several {
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

// has tells whether a plugin of the type is in the chain.
func (c Chain) has(typ string) bool {
	plugins, _ := c.list["plugins"].([]any)
	return slices.ContainsFunc(plugins, func(p any) bool {
		object, _ := p.(map[string]any)
		return object["type"] == typ
	})
}

// capabilities are those that any plugin of the chain declares.
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

// capabilityArgs are what a runtime provides for a pod, as kubelet does: two ports of the node that no other pod of the
// world has, and a shape. libcni hands on what the chain declares.
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
