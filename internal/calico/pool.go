// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// Calico's default prefix lengths of blocks.
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

// Pool converts an IPPool. Warnings are differences from Calico's behavior.
func Pool(o store.Object) (model.AddressPool, []model.Warning, error) {
	var in ipPool
	if err := decode(o, &in); err != nil {
		return model.AddressPool{}, nil, err
	}
	s := in.Spec
	pool := model.AddressPool{
		Name: o.Key.Name, AssignmentMode: model.AssignAutomatic, NodeSelector: s.NodeSelector,
		NamespaceSelector: s.NamespaceSelector,
		Disabled:          s.Disabled, NATOutgoing: s.NATOutgoing, Deleted: in.Metadata.DeletionTimestamp != nil,
		DisableBGPExport: s.DisableBGPExport,
	}
	if t := in.Metadata.CreationTimestamp; !t.IsZero() {
		pool.Created = t.Unix()
	}
	switch s.AssignmentMode {
	case "", "Automatic":
	case "Manual":
		pool.AssignmentMode = model.AssignManual
	default:
		return pool, nil, invalid(o, "write Automatic or Manual", "spec.assignmentMode %q is not known", s.AssignmentMode)
	}
	for i, text := range s.AllowedUses {
		use := model.AddressUse(text)
		if use != model.UseWorkload && use != model.UseTunnel && use != model.UseLoadBalancer {
			return pool, nil, invalid(o, "write Workload, Tunnel or LoadBalancer",
				"spec.allowedUses[%d] %q is not known", i, text)
		}
		pool.AllowedUses = append(pool.AllowedUses, use)
	}
	region, warnings, err := region(o, s.CIDR, s.BlockSize)
	if err != nil {
		return pool, nil, err
	}
	pool.Regions = []model.AddressRegion{region}
	if pool.Encapsulation, err = encapsulation(o, s.VXLANMode, s.IPIPMode); err != nil {
		return pool, nil, err
	}
	if i := slices.Index(pool.AllowedUses, model.UseLoadBalancer); i >= 0 && !pool.ForServices() {
		warnings = append(warnings, model.Warning{
			Field: fmt.Sprintf("spec.allowedUses[%d]", i), Msg: "Services get no addresses of a pool with other uses",
			Hint: "create another pool for Services",
		})
	}
	return pool, warnings, nil
}

// region returns the pool's region with its block size. weft's blocks have at most 256 addresses; smaller blocks than
// Calico's are no problem, as neither uses the other's blocks.
func region(o store.Object, cidr string, size int) (model.AddressRegion, []model.Warning, error) {
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
		return model.AddressRegion{}, nil, invalid(o,
			fmt.Sprintf("a prefix length from %d to %d", max(least, p.Bits()), most),
			"spec.blockSize %d cannot be used in %s", size, p)
	}
	if smallest := bits - model.MaxBlockBits; size < smallest {
		warning := model.Warning{
			Field: "spec.blockSize",
			Msg:   fmt.Sprintf("blocks of /%d are larger than weft's may be: /%d is taken", size, smallest),
			Hint:  "no action is needed: a node claims more blocks",
		}
		return model.AddressRegion{CIDR: p, BlockSize: smallest}, []model.Warning{warning}, nil
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
			return out, invalid(o, "write Always, CrossSubnet or Never", "%s %q is not known", m.field, m.mode)
		}
		if !out.None() {
			return out, invalid(o, "one of them is Never", "spec.vxlanMode %q and spec.ipipMode %q contradict each other", vxlan,
				ipip)
		}
		out = model.Encapsulation{Kind: m.kind, Mode: model.EncapsulationMode(m.mode)}
	}
	return out, nil
}

// Reservation reads an IPReservation: ranges that nothing more is allocated from.
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
		out = append(out, model.ExcludedRange{CIDR: p, Source: o.Key.String()})
	}
	return out, nil
}

// IsReservation reports whether the source of an excluded range is an IPReservation.
func IsReservation(by string) bool { return strings.HasPrefix(by, "IPReservation ") }

// Configuration is the part of an IPAMConfig about pools.
type Configuration struct {
	// MaxBlocks is how many blocks a node may have; 0: unchanged.
	MaxBlocks int
	// Cooldown is how long a released address is not allocated, in seconds; 0: unchanged.
	Cooldown int
}

// Configure reads an IPAMConfig or IPAMConfiguration. Warnings are differences from Calico's behavior.
func Configure(o store.Object) (Configuration, []model.Warning, error) {
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
		return out, nil, invalid(o, "write how many, or 0 for no bound", "spec.maxBlocksPerHost %d is negative",
			out.MaxBlocks)
	}
	if s.IPCooldownSeconds < 0 || s.MinIPReclaimAgeSeconds < 0 {
		return out, nil, invalid(o, "write a number of seconds", "spec.ipCooldownSeconds %d is negative",
			min(s.IPCooldownSeconds, s.MinIPReclaimAgeSeconds))
	}
	var warnings []model.Warning
	if s.AutoAllocateBlocks != nil && !*s.AutoAllocateBlocks {
		warnings = append(warnings, model.Warning{
			Field: "spec.autoAllocateBlocks", Msg: "weft's nodes always claim blocks when they need some",
			Hint: "assign pools to nodes by nodeSelector",
		})
	}
	return out, warnings, nil
}
