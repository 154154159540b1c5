// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/json"
	"math"
	"path/filepath"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/dhcp/rpc"
	"github.com/weft-net/weft/internal/model"
)

// Settings is a decoded and validated ipam section.
type Settings struct {
	// Socket is the daemon's.
	Socket string
	// IPv4 and IPv6 are the families that leases are wanted of.
	IPv4, IPv6 bool
	// Provide are options that are sent with each IPv4 message.
	Provide []Option
	// Request are the requested IPv4 options.
	Request []uint8
	// Priority is the metric of the routes, 0 the kernel's.
	Priority int
}

// Option is a DHCPv4 option with its value.
type Option struct {
	Code  uint8
	Value []byte
}

type conf struct {
	IPAM json.RawMessage `json:"ipam"`
}

type section struct {
	DaemonSocketPath string `json:"daemonSocketPath"`
	Provide          []struct {
		Option  string `json:"option"`
		Value   string `json:"value"`
		FromArg string `json:"fromArg"`
	} `json:"provide"`
	Request []struct {
		Option      string `json:"option"`
		SkipDefault bool   `json:"skipDefault"`
	} `json:"request"`
	Priority int   `json:"priority"`
	IPv4     *bool `json:"ipv4"`
	IPv6     bool  `json:"ipv6"`
}

// Read reads the settings of a plugin object; args are the pairs of CNI_ARGS.
func Read(raw json.RawMessage, args [][2]string) (Settings, error) {
	var c conf
	var in section
	if err := ipam.Decode("", raw, &c); err != nil {
		return Settings{}, err
	}
	if len(c.IPAM) == 0 {
		return Settings{}, ipam.Invalid(`add "ipam": {"type": "dhcp"}`, "configuration: ipam is missing")
	}
	if err := ipam.Decode("ipam", c.IPAM, &in); err != nil {
		return Settings{}, err
	}
	s := Settings{Socket: in.DaemonSocketPath, IPv4: in.IPv4 == nil || *in.IPv4, IPv6: in.IPv6, Priority: in.Priority}
	if s.Socket == "" {
		s.Socket = rpc.DefaultSocket
	}
	switch {
	case !filepath.IsAbs(s.Socket):
		return s, ipam.Invalid("write the path from the root", "ipam.daemonSocketPath %q is not absolute", s.Socket)
	case in.Priority < 0 || in.Priority > math.MaxUint32:
		return s, ipam.Invalid("0 leaves it to the kernel", "ipam.priority %d is not between 0 and %d", in.Priority,
			uint32(math.MaxUint32))
	case !s.IPv4 && !s.IPv6:
		return s, ipam.Invalid(`set "ipv6": true, or leave ipv4 out`,
			"ipam.ipv4 is false and ipam.ipv6 is not true: there is nothing to ask for")
	}
	if err := s.provide(in, args); err != nil {
		return s, err
	}
	return s, s.request(in)
}

// provide returns the options to send. The value is in the configuration; a CNI argument of that name takes precedence.
func (s *Settings) provide(in section, args [][2]string) error {
	for i, p := range in.Provide {
		code, err := optionCode("ipam.provide", i, p.Option)
		if err != nil {
			return err
		}
		if why := notProvidable(code); why != "" {
			return ipam.Invalid("remove it", "ipam.provide[%d].option %q is %s", i, p.Option, why)
		}
		if len(p.Value) > maxOption {
			return ipam.Invalid("an option holds 255 bytes", "ipam.provide[%d].value of option %q has %d bytes", i, p.Option,
				len(p.Value))
		}
		value, given := p.Value, p.Value != ""
		for _, kv := range args {
			if kv[0] != p.FromArg || p.FromArg == "" {
				continue
			}
			if value, given = kv[1], true; len(value) > maxOption {
				return model.Errorf(model.CodeInvalidEnv, "an option holds 255 bytes",
					"environment: CNI_ARGS %s for ipam.provide[%d].option %q has %d bytes", p.FromArg, i, p.Option, len(value))
			}
		}
		if given {
			s.Provide = append(s.Provide, Option{Code: code, Value: []byte(value)})
		}
	}
	return nil
}

// request returns the requested options: the configured ones, and the default ones unless they are skipped.
func (s *Settings) request(in section) error {
	skip := false
	for i, r := range in.Request {
		skip = skip || r.SkipDefault
		if r.Option == "" {
			continue
		}
		code, err := optionCode("ipam.request", i, r.Option)
		if err != nil {
			return err
		}
		s.req(code)
	}
	if !skip {
		for _, code := range defaultRequest() {
			s.req(code)
		}
	}
	return nil
}

func (s *Settings) req(code uint8) {
	for _, have := range s.Request {
		if have == code {
			return
		}
	}
	s.Request = append(s.Request, code)
}
