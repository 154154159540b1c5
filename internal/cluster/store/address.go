// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"github.com/weft-net/weft/api/v1alpha1"
	"github.com/weft-net/weft/internal/model"
)

const addressVersion = Group + "/" + v1alpha1.Version

// AddressPool returns the object as a pool. A region without a block size gets the default for its size.
func (o Object) AddressPool() (model.AddressPool, error) {
	var p struct {
		Metadata lifetime                   `json:"metadata"`
		Spec     v1alpha1.AddressPoolSpec   `json:"spec"`
		Status   v1alpha1.AddressPoolStatus `json:"status"`
	}
	if err := o.decode(&p); err != nil {
		return model.AddressPool{}, err
	}
	pool := model.AddressPool{
		Name: o.Key.Name, Cooldown: int(p.Spec.CooldownSeconds), ExhaustedOn: p.Status.ExhaustedOn,
		Created: p.Metadata.created(), Deleted: !p.Metadata.DeletionTimestamp.IsZero(),
	}
	if pool.Cooldown < 0 {
		return pool, o.errorf("write a number of seconds", "spec.cooldownSeconds %d is negative", pool.Cooldown)
	}
	for i, r := range p.Spec.Regions {
		region, err := o.region(fmt.Sprintf("spec.regions[%d]", i), r)
		if err != nil {
			return pool, err
		}
		for j, other := range pool.Regions {
			if other.CIDR.Overlaps(region.CIDR) {
				return pool, o.errorf("take one of them out", "spec.regions[%d].cidr %s overlaps with spec.regions[%d].cidr %s", i,
					region.CIDR, j, other.CIDR)
			}
		}
		pool.Regions = append(pool.Regions, region)
	}
	for i, r := range p.Spec.Reserved {
		a, err := o.addr(fmt.Sprintf("spec.reserved[%d].address", i), r.Address)
		if err != nil {
			return pool, err
		}
		pool.Reserved = append(pool.Reserved, model.ReservedAddress{
			Addr: a, Owner: r.Owner, ContainerID: r.ContainerID, IfName: r.IfName, Source: r.Source,
		})
	}
	for i, r := range p.Spec.Excluded {
		cidr, err := o.prefix(fmt.Sprintf("spec.excluded[%d].cidr", i), r.CIDR)
		if err != nil {
			return pool, err
		}
		pool.Excluded = append(pool.Excluded, model.ExcludedRange{CIDR: cidr, Reason: r.Reason, Source: r.Source})
	}
	return pool, o.ofCluster(&pool, p.Spec)
}

func (o Object) region(field string, r v1alpha1.AddressRegion) (model.AddressRegion, error) {
	cidr, err := o.prefix(field+".cidr", r.CIDR)
	if err != nil {
		return model.AddressRegion{}, err
	}
	size := int(r.BlockSize)
	if size == 0 {
		size = model.BlockSize(cidr, hosts(cidr))
	}
	if most := cidr.Addr().BitLen(); size < cidr.Bits() || size > most || most-size > model.MaxBlockBits {
		return model.AddressRegion{}, o.errorf(
			fmt.Sprintf("a prefix length from %d to %d", max(cidr.Bits(), most-model.MaxBlockBits), most),
			"%s.blockSize %d cannot be used in %s", field, size, cidr)
	}
	return model.AddressRegion{CIDR: cidr, BlockSize: size}, nil
}

// hosts returns the number of addresses of a prefix, at most 2^30.
func hosts(p netip.Prefix) int { return 1 << min(p.Addr().BitLen()-p.Bits(), 30) }

// AddressPoolObject returns o, or a new object, with the content of the pool. Unknown fields and the status are kept:
// ExhaustedOn is written by WithWanted.
func AddressPoolObject(o Object, p model.AddressPool) (Object, error) {
	spec := clusterSpecOf(p)
	var err error
	if spec.CooldownSeconds, err = o.int32("spec.cooldownSeconds", p.Cooldown); err != nil {
		return o, err
	}
	if spec.MaxBlocksPerNode, err = o.int32("spec.maxBlocksPerNode", p.MaxBlocks); err != nil {
		return o, err
	}
	said := o.sizesLeftOut()
	for _, r := range p.Regions {
		size := r.BlockSize
		if said[r.CIDR] && size == model.BlockSize(r.CIDR, hosts(r.CIDR)) {
			size = 0
		}
		spec.Regions = append(spec.Regions, v1alpha1.AddressRegion{CIDR: r.CIDR.String(), BlockSize: int32(size)})
	}
	for _, r := range p.Reserved {
		spec.Reserved = append(spec.Reserved, v1alpha1.ReservedAddress{
			Address: r.Addr.String(), Owner: r.Owner, ContainerID: r.ContainerID, IfName: r.IfName, Source: r.Source,
		})
	}
	for _, r := range p.Excluded {
		spec.Excluded = append(spec.Excluded,
			v1alpha1.ExcludedRange{CIDR: r.CIDR.String(), Reason: r.Reason, Source: r.Source})
	}
	return o.withSpec(AddressPools().Key("", p.Name), spec, "regions", "cooldownSeconds", "wanted", "reserved", "excluded",
		"assignmentMode", "nodeSelector", "namespaceSelector", "allowedUses", "disabled", "encapsulation", "natOutgoing",
		"disableBGPExport", "maxBlocksPerNode")
}

// sizesLeftOut returns the regions without a block size. The API server rejects adding it later.
func (o Object) sizesLeftOut() map[netip.Prefix]bool {
	var p struct{ Spec v1alpha1.AddressPoolSpec }
	if len(o.Raw) == 0 || o.decode(&p) != nil {
		return nil
	}
	out := map[netip.Prefix]bool{}
	for _, r := range p.Spec.Regions {
		if cidr, err := netip.ParsePrefix(r.CIDR); err == nil && r.BlockSize == 0 {
			out[cidr] = true
		}
	}
	return out
}

// int32 converts a number of the model to the API's type.
func (o Object) int32(field string, n int) (int32, error) {
	if n < math.MinInt32 || n > math.MaxInt32 {
		return 0, o.errorf("write a smaller number", "%s %d is no number of 32 bits", field, n)
	}
	return int32(n), nil
}

// AddressBlock returns the object as a block.
func (o Object) AddressBlock() (model.AddressBlock, error) {
	var b struct{ Spec v1alpha1.AddressBlockSpec }
	if err := o.decode(&b); err != nil {
		return model.AddressBlock{}, err
	}
	cidr, err := o.prefix("spec.cidr", b.Spec.CIDR)
	if err != nil {
		return model.AddressBlock{}, err
	}
	block := model.AddressBlock{
		Pool: b.Spec.Pool, CIDR: cidr, Node: b.Spec.Node, MachineID: b.Spec.HostID, Claim: b.Spec.Claim,
		Orphaned: b.Spec.Orphaned,
	}
	if want := BlockName(block.Pool, cidr); o.Key.Name != want {
		return block, o.errorf("delete it; weft makes these objects itself",
			"spec: pool %q and cidr %s belong to the name %q", block.Pool, cidr, want)
	}
	if cidr.Addr().BitLen()-cidr.Bits() > model.MaxBlockBits {
		return block, o.errorf("delete it; weft makes these objects itself", "spec.cidr %s is too large for a block", cidr)
	}
	if block.Requested, err = o.addrMap("spec.asked", cidr, b.Spec.Requested); err != nil {
		return block, err
	}
	if block.Lent, err = o.addrMap("spec.ceded", cidr, b.Spec.Lent); err != nil {
		return block, err
	}
	block.Granted, err = o.addrMap("spec.granted", cidr, b.Spec.Granted)
	return block, err
}

func (o Object) addrMap(field string, cidr netip.Prefix, in map[string]string) (map[netip.Addr]string, error) {
	if len(in) == 0 {
		return nil, nil
	}
	out := map[netip.Addr]string{}
	for k, v := range in {
		a, err := o.addr(field, k)
		if err != nil {
			return nil, err
		}
		if !cidr.Contains(a) {
			return nil, o.errorf("take it out", "%s: %s is not in %s", field, a, cidr)
		}
		out[a] = v
	}
	return out, nil
}

// AddressBlockObject returns o, or a new object, with the content of the block.
func AddressBlockObject(o Object, b model.AddressBlock) (Object, error) {
	spec := v1alpha1.AddressBlockSpec{
		Pool: b.Pool, CIDR: b.CIDR.String(), Node: b.Node, HostID: b.MachineID,
		Claim: b.Claim, Requested: texts(b.Requested), Lent: texts(b.Lent),
		Granted: texts(b.Granted), Orphaned: b.Orphaned,
	}
	return o.withSpec(AddressBlocks().Key("", BlockName(b.Pool, b.CIDR)), spec, "pool", "cidr", "node", "machine", "claim",
		"asked", "ceded", "granted", "orphaned")
}

func texts(in map[netip.Addr]string) map[string]string {
	if len(in) == 0 {
		return nil
	}
	out := map[string]string{}
	for k, v := range in {
		out[k.String()] = v
	}
	return out
}

// BlockName returns the name of a block's object. It is unique, so that only one of two nodes can create it.
func BlockName(pool string, cidr netip.Prefix) string {
	addr := strings.NewReplacer(".", "-", ":", "-").Replace(cidr.Addr().StringExpanded())
	return pool + "-" + addr + "-" + strconv.Itoa(cidr.Bits())
}

// withSpec returns the object with these fields of its spec replaced; an empty object is created. Fields that this
// program does not know are kept, also inside of the replaced ones: a later version may have written them.
func (o Object) withSpec(key Key, spec any, owned ...string) (Object, error) {
	if o.Key == (Key{}) {
		o.Key = key
		meta := map[string]any{"name": key.Name}
		if key.Namespace != "" {
			meta["namespace"] = key.Namespace
		}
		o.Raw, _ = json.Marshal(map[string]any{"apiVersion": addressVersion, "kind": key.Kind, "metadata": meta})
	}
	return o.Edited(func(fields map[string]any) error {
		have, err := child(fields, "spec")
		if err != nil {
			return err
		}
		b, err := json.Marshal(spec)
		if err != nil {
			return err
		}
		more, err := decodeFields(b)
		if err != nil {
			return err
		}
		known := fieldTypes(reflect.TypeOf(spec))
		for _, k := range owned {
			if f, is := known[k]; is {
				keepUnknown(have[k], more[k], f)
			}
			delete(have, k)
		}
		for k, v := range more {
			have[k] = v
		}
		return nil
	})
}
