// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// settings is a decoded and validated configuration.
type settings struct {
	dir        string
	sets       []rangeSet
	requested  []netip.Addr
	routes     ipam.Routes
	resolvConf string
}

// outer is the relevant part of the plugin object.
type outer struct {
	CNIVersion    string          `json:"cniVersion"`
	IPAM          json.RawMessage `json:"ipam"`
	RuntimeConfig struct {
		IPRanges [][]spanConf `json:"ipRanges"`
		IPs      []string     `json:"ips"`
	} `json:"runtimeConfig"`
	Args struct {
		CNI struct {
			IPs []string `json:"ips"`
		} `json:"cni"`
	} `json:"args"`
}

// inner is the ipam section.
type inner struct {
	Subnet     string       `json:"subnet"`
	RangeStart string       `json:"rangeStart"`
	RangeEnd   string       `json:"rangeEnd"`
	Gateway    string       `json:"gateway"`
	Ranges     [][]spanConf `json:"ranges"`
	Routes     ipam.Routes  `json:"routes"`
	DataDir    string       `json:"dataDir"`
	ResolvConf string       `json:"resolvConf"`
}

// parsed is the part of the settings that depends on the configuration alone.
type parsed struct {
	outer
	inner
	sets []rangeSet
}

func (a *Allocator) settings(req ipam.Request) (settings, error) {
	p, err := a.parse(req.Conf)
	if err != nil {
		return settings{}, err
	}
	s := settings{sets: p.sets, routes: slices.Clone(p.Routes), resolvConf: p.ResolvConf}
	if s.dir, err = a.directory(p.DataDir, req.Network); err != nil {
		return s, err
	}
	s.requested, err = requested(req, p.outer)
	return s, err
}

// parse decodes and validates a configuration, unless it did before.
func (a *Allocator) parse(conf json.RawMessage) (parsed, error) {
	if p, found := a.parsed.Get(conf); found {
		return p, nil
	}
	var p parsed
	if err := ipam.Decode("", conf, &p.outer); err != nil {
		return p, err
	}
	if len(p.IPAM) == 0 {
		return p, ipam.Invalid(`add "ipam": {"type": "host-local", "ranges": [[{"subnet": …}]]}`,
			"configuration: ipam is missing")
	}
	if err := ipam.Decode("ipam", p.IPAM, &p.inner); err != nil {
		return p, err
	}
	if err := p.Routes.Check(); err != nil {
		return p, err
	}
	var err error
	if p.sets, err = readSets(p.outer, p.inner); err == nil {
		p.IPAM = nil // it is decoded
		a.parsed.Put(conf, p)
	}
	return p, err
}

// readSets returns the range sets: the runtime's, the single one in the old style, then ranges.
func readSets(o outer, in inner) ([]rangeSet, error) {
	type named struct {
		name  string
		spans []spanConf
	}
	var all []named
	for i, r := range o.RuntimeConfig.IPRanges {
		all = append(all, named{index("runtimeConfig.ipRanges", i), r})
	}
	if in.Subnet != "" {
		all = append(all, named{"ipam", []spanConf{{in.Subnet, in.RangeStart, in.RangeEnd, in.Gateway}}})
	}
	for i, r := range in.Ranges {
		all = append(all, named{index("ipam.ranges", i), r})
	}
	if len(all) == 0 {
		return nil, ipam.Invalid(`add "subnet" or "ranges": [[{"subnet": …}]]`, "ipam: no ranges")
	}
	var sets []rangeSet
	v4, v6 := 0, 0
	for _, n := range all {
		set, err := readSet(n.name, n.spans)
		if err != nil {
			return nil, err
		}
		for _, other := range sets {
			if set.overlaps(other) {
				return nil, ipam.Invalid(overlapHint, "%s %s overlaps with %s %s", set.name, set, other.name, other)
			}
		}
		if set.spans[0].start.Is4() {
			v4++
		} else {
			v6++
		}
		sets = append(sets, set)
	}
	return sets, ipam.OnePerFamily(o.CNIVersion, v4, v6)
}

// requested returns the addresses that the runtime requests: from CNI_ARGS, args.cni.ips and runtimeConfig.ips.
func requested(req ipam.Request, o outer) ([]netip.Addr, error) {
	if err := ipam.CheckArgs(req.Args); err != nil {
		return nil, err
	}
	var out []netip.Addr
	add := func(field, value string, code model.Code) error {
		addr, err := ipam.ParseAddr(value)
		if err != nil {
			return model.Errorf(code, "an address, for example 10.1.0.5", "%s %q: %w", field, value, err)
		}
		out = append(out, addr)
		return nil
	}
	if list := ipam.Arg(req.Args, "IP"); list != "" {
		for v := range strings.SplitSeq(list, ",") { // as Multus writes several
			if err := add("environment: CNI_ARGS IP", v, model.CodeInvalidEnv); err != nil {
				return nil, err
			}
		}
	}
	for _, v := range o.Args.CNI.IPs {
		if err := add("args.cni.ips", v, model.CodeInvalidConf); err != nil {
			return nil, err
		}
	}
	for _, v := range o.RuntimeConfig.IPs {
		if err := add("runtimeConfig.ips", v, model.CodeInvalidConf); err != nil {
			return nil, err
		}
	}
	return unique(out), nil
}

func unique(addrs []netip.Addr) []netip.Addr {
	seen := map[netip.Addr]bool{}
	var out []netip.Addr
	for _, a := range addrs {
		if !seen[a] {
			out = append(out, a)
		}
		seen[a] = true
	}
	return out
}

// directoryOf returns the directory of the network. It decodes nothing else of the configuration, because DEL and GC
// must work with an invalid one.
func (a *Allocator) directoryOf(req ipam.Request) (string, error) {
	var conf struct {
		IPAM struct {
			DataDir string `json:"dataDir"`
		} `json:"ipam"`
	}
	if p, found := a.parsed.Get(req.Conf); found {
		conf.IPAM.DataDir = p.DataDir
	} else {
		_ = json.Unmarshal(req.Conf, &conf) // ignore errors
	}
	return a.directory(conf.IPAM.DataDir, req.Network)
}

// directory returns the directory of a network; dataDir is the configuration's, which may be empty.
func (a *Allocator) directory(dataDir, network string) (string, error) {
	if filepath.Base(network) != network || network == "." || network == ".." {
		return "", ipam.Invalid("", "network name %q cannot be a directory's name", network)
	}
	if dataDir == "" {
		dataDir = a.cfg.DataDir
	}
	return filepath.Join(dataDir, network), nil
}

func (s settings) contains(addr netip.Addr) bool {
	for _, set := range s.sets {
		if set.contains(addr) {
			return true
		}
	}
	return false
}
