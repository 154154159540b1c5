// SPDX-License-Identifier: Apache-2.0

package poolconf

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// Cluster is a decoded configuration of calico-ipam, for the cluster's network.
type Cluster struct {
	// Families are those to allocate an address of; Pools are the words that name pools of each, if any.
	Families []model.IPFamily
	Pools    map[model.IPFamily][]string
	// Requested are the addresses that the runtime requests.
	Requested []netip.Addr
}

// flag is a boolean that may be written as a string.
type flag bool

// UnmarshalJSON reads true, "true", false and "false".
func (f *flag) UnmarshalJSON(b []byte) error {
	on, err := strconv.ParseBool(strings.Trim(string(b), `"`))
	*f = flag(on)
	return err
}

// mostConfs bounds how many configurations are cached.
const mostConfs = 64

// readConf is a decoded configuration.
type readConf struct {
	Cluster
	outer outer
}

// confs caches decoded configurations: nearly all pods have the same one.
type confs struct {
	mu   sync.Mutex
	read map[string]readConf
}

// ClusterSettings decodes the calico-ipam configuration of an attachment, with the addresses that the runtime requests.
func (cr *Reader) ClusterSettings(req ipam.Request) (Cluster, error) {
	cr.confs.mu.Lock()
	r, known := cr.confs.read[string(req.Conf)]
	cr.confs.mu.Unlock()
	if !known {
		var err error
		if r, err = readCluster(req.Conf); err != nil {
			return Cluster{}, err
		}
		cr.confs.mu.Lock()
		if cr.confs.read == nil || len(cr.confs.read) >= mostConfs {
			cr.confs.read = map[string]readConf{}
		}
		cr.confs.read[string(req.Conf)] = r
		cr.confs.mu.Unlock()
	}
	var s Settings
	err := s.readRequests(req, r.outer)
	r.Requested = s.Requested
	return r.Cluster, err
}

// readCluster decodes a configuration.
func readCluster(conf json.RawMessage) (readConf, error) {
	var c readConf
	var in struct {
		Assign4 json.RawMessage `json:"assign_ipv4"`
		Assign6 json.RawMessage `json:"assign_ipv6"`
		Pools4  []string        `json:"ipv4_pools"`
		Pools6  []string        `json:"ipv6_pools"`
	}
	if err := ipam.Decode("", conf, &c.outer); err != nil {
		return c, err
	}
	if err := ipam.Decode("ipam", c.outer.IPAM, &in); err != nil {
		return c, err
	}
	for _, one := range []struct {
		key    string
		value  json.RawMessage
		family model.IPFamily
		on     flag
	}{{"assign_ipv4", in.Assign4, model.IPv4, true}, {"assign_ipv6", in.Assign6, model.IPv6, false}} {
		if len(one.value) > 0 && json.Unmarshal(one.value, &one.on) != nil {
			return c, ipam.Invalid(`write "true" or "false"`, "ipam.%s %s is neither true nor false", one.key, one.value)
		}
		if one.on {
			c.Families = append(c.Families, one.family)
		}
	}
	if len(c.Families) == 0 {
		return c, ipam.Invalid("set one of them to true",
			"ipam.assign_ipv4 and ipam.assign_ipv6 are both false: there is nothing to allocate")
	}
	c.Pools = map[model.IPFamily][]string{model.IPv4: in.Pools4, model.IPv6: in.Pools6}
	for _, list := range []struct {
		field string
		words []string
	}{{"ipam.ipv4_pools", in.Pools4}, {"ipam.ipv6_pools", in.Pools6}} {
		if i := slices.Index(list.words, ""); i >= 0 {
			return c, ipam.Invalid("a pool's name or its CIDR", "%s[%d] is empty", list.field, i)
		}
	}
	return c, nil
}
