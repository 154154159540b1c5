// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"fmt"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// How long Calico's blocks are where a pool does not say.
const (
	blockSize4 = 26
	blockSize6 = 122
)

type ipPool struct {
	Metadata struct {
		CreationTimestamp time.Time  `json:"creationTimestamp"`
		DeletionTimestamp *time.Time `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		CIDR              string   `json:"cidr"`
		BlockSize         int      `json:"blockSize"`
		VXLANMode         string   `json:"vxlanMode"`
		IPIPMode          string   `json:"ipipMode"`
		NATOutgoing       bool     `json:"natOutgoing"`
		Disabled          bool     `json:"disabled"`
		DisableBGPExport  bool     `json:"disableBGPExport"`
		NodeSelector      string   `json:"nodeSelector"`
		NamespaceSelector string   `json:"namespaceSelector"`
		AllowedUses       []string `json:"allowedUses"`
		AssignmentMode    string   `json:"assignmentMode"`
	} `json:"spec"`
}

// Pool is an IPPool as a pool of weft's. Doubts are what weft does not do as Calico does.
func Pool(o store.Object) (model.AddressPool, []model.Doubt, error) {
	var in ipPool
	if err := decode(o, &in); err != nil {
		return model.AddressPool{}, nil, err
	}
	s := in.Spec
	pool := model.AddressPool{
		Name: o.Key.Name, AssignmentMode: model.AssignAutomatic, NodeSelector: s.NodeSelector,
		NamespaceSelector: s.NamespaceSelector,
		Disabled:          s.Disabled, NATOutgoing: s.NATOutgoing, Deleted: in.Metadata.DeletionTimestamp != nil,
	}
	if t := in.Metadata.CreationTimestamp; !t.IsZero() {
		pool.Created = t.Unix()
	}
	switch s.AssignmentMode {
	case "", "Automatic":
	case "Manual":
		pool.AssignmentMode = model.AssignManual
	default:
		return pool, nil, fault(o, "write Automatic or Manual", "spec.assignmentMode %q is not known", s.AssignmentMode)
	}
	for i, text := range s.AllowedUses {
		use := model.AddressUse(text)
		if use != model.UseWorkload && use != model.UseTunnel && use != model.UseLoadBalancer {
			return pool, nil, fault(o, "write Workload, Tunnel or LoadBalancer", "spec.allowedUses[%d] %q is not known", i, text)
		}
		pool.AllowedUses = append(pool.AllowedUses, use)
	}
	region, doubts, err := region(o, s.CIDR, s.BlockSize)
	if err != nil {
		return pool, nil, err
	}
	pool.Regions = []model.AddressRegion{region}
	if pool.Encapsulation, err = encapsulation(o, s.VXLANMode, s.IPIPMode); err != nil {
		return pool, nil, err
	}
	if s.DisableBGPExport {
		doubts = append(doubts, model.Doubt{Field: "spec.disableBGPExport", Msg: "weft speaks no BGP", Hint: "leave it out"})
	}
	return pool, doubts, nil
}

// region is how the pool is cut. Blocks of weft's have 256 addresses at most; that they are smaller than Calico's does
// no harm, as no block of the one is ever used as a block of the other.
func region(o store.Object, cidr string, size int) (model.AddressRegion, []model.Doubt, error) {
	p, err := prefix(o, "spec.cidr", cidr)
	if err != nil {
		return model.AddressRegion{}, nil, err
	}
	bits := p.Addr().BitLen()
	least, most, usual := 20, 32, blockSize4
	if p.Addr().Is6() {
		least, most, usual = 116, 128, blockSize6
	}
	if size == 0 {
		size = usual
	}
	if size < least || size > most || size < p.Bits() {
		return model.AddressRegion{}, nil, fault(o, fmt.Sprintf("a prefix length from %d to %d", max(least, p.Bits()), most),
			"spec.blockSize %d cannot be used in %s", size, p)
	}
	if smallest := bits - model.MostBlockBits; size < smallest {
		doubt := model.Doubt{
			Field: "spec.blockSize",
			Msg:   fmt.Sprintf("blocks of /%d are larger than weft's may be: /%d is taken", size, smallest),
			Hint:  "nothing is to be done: a node takes more blocks",
		}
		return model.AddressRegion{CIDR: p, BlockSize: smallest}, []model.Doubt{doubt}, nil
	}
	return model.AddressRegion{CIDR: p, BlockSize: size}, nil, nil
}

func encapsulation(o store.Object, vxlan, ipip string) (model.Encapsulation, error) {
	out := model.Encapsulation{Kind: model.EncapsulationNone}
	for _, m := range []struct {
		field, mode string
		kind        model.EncapsulationKind
	}{{"spec.vxlanMode", vxlan, model.EncapsulationVXLAN}, {"spec.ipipMode", ipip, model.EncapsulationIPIP}} {
		switch m.mode {
		case "", "Never":
			continue
		case "Always", "CrossSubnet":
		default:
			return out, fault(o, "write Always, CrossSubnet or Never", "%s %q is not known", m.field, m.mode)
		}
		if !out.None() {
			return out, fault(o, "one of them is Never", "spec.vxlanMode %q and spec.ipipMode %q contradict each other", vxlan,
				ipip)
		}
		out = model.Encapsulation{Kind: m.kind, When: model.EncapsulationWhen(m.mode)}
	}
	return out, nil
}

// Reservation is an IPReservation: ranges of which nothing further is given.
func Reservation(o store.Object) ([]model.ExcludedRange, error) {
	var in struct {
		Spec struct {
			ReservedCIDRs []string `json:"reservedCIDRs"`
		} `json:"spec"`
	}
	if err := decode(o, &in); err != nil {
		return nil, err
	}
	var out []model.ExcludedRange
	for i, text := range in.Spec.ReservedCIDRs {
		p, err := prefix(o, fmt.Sprintf("spec.reservedCIDRs[%d]", i), text)
		if err != nil {
			return nil, err
		}
		out = append(out, model.ExcludedRange{CIDR: p, By: o.Key.String()})
	}
	return out, nil
}

// IsReservation tells whether somebody who keeps addresses back is an IPReservation.
func IsReservation(by string) bool { return strings.HasPrefix(by, "IPReservation ") }

// Configuration is what of an IPAMConfig concerns pools.
type Configuration struct {
	// MaxBlocks is how many blocks a node may have; 0 leaves it.
	MaxBlocks int
	// Cooldown is for how many seconds an address rests; 0 leaves it.
	Cooldown int
}

// Configure reads an IPAMConfig or IPAMConfiguration. Doubts are what weft does not do as Calico does.
func Configure(o store.Object) (Configuration, []model.Doubt, error) {
	var in struct {
		Spec struct {
			StrictAffinity         *bool `json:"strictAffinity"`
			AutoAllocateBlocks     *bool `json:"autoAllocateBlocks"`
			MaxBlocksPerHost       int   `json:"maxBlocksPerHost"`
			IPCooldownSeconds      int   `json:"ipCooldownSeconds"`
			MinIPReclaimAgeSeconds int   `json:"minIPReclaimAgeSeconds"`
		} `json:"spec"`
	}
	if err := decode(o, &in); err != nil {
		return Configuration{}, nil, err
	}
	s := in.Spec
	out := Configuration{MaxBlocks: s.MaxBlocksPerHost, Cooldown: max(s.IPCooldownSeconds, s.MinIPReclaimAgeSeconds)}
	if out.MaxBlocks < 0 {
		return out, nil, fault(o, "write how many, or 0 for no bound", "spec.maxBlocksPerHost %d is negative", out.MaxBlocks)
	}
	if s.IPCooldownSeconds < 0 || s.MinIPReclaimAgeSeconds < 0 {
		return out, nil, fault(o, "write a number of seconds", "spec.ipCooldownSeconds %d is negative",
			min(s.IPCooldownSeconds, s.MinIPReclaimAgeSeconds))
	}
	var doubts []model.Doubt
	if s.AutoAllocateBlocks != nil && !*s.AutoAllocateBlocks {
		doubts = append(doubts, model.Doubt{
			Field: "spec.autoAllocateBlocks", Msg: "weft's nodes always claim blocks when they need some",
			Hint: "give pools to nodes by nodeSelector",
		})
	}
	return out, doubts, nil
}
