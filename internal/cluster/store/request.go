// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/api/v1alpha1"
	"github.com/weft-net/weft/internal/model"
)

// AddressPoolRequest returns the object as a request.
func (o Object) AddressPoolRequest() (model.PoolRequest, error) {
	var p struct {
		Spec v1alpha1.AddressPoolRequestSpec
	}
	if err := o.decode(&p); err != nil {
		return model.PoolRequest{}, err
	}
	r := model.PoolRequest{
		Node: p.Spec.Node, Pool: p.Spec.Pool, Addresses: int(p.Spec.Addresses), Network: p.Spec.Network, Claim: p.Spec.Claim,
	}
	if p.Spec.Address != "" {
		err := o.addressRequest(&r, p.Spec)
		return r, err
	}
	if r.Pool == "" {
		return r, nil
	}
	if err := model.CheckName("spec.pool", r.Pool); err != nil {
		return r, err
	}
	var err error
	r.CIDR, err = o.prefix("spec.cidr", p.Spec.CIDR)
	if err == nil && r.Addresses <= 0 {
		err = o.errorf("write how many addresses of the range are for use",
			"spec.addresses %d is no number of addresses", r.Addresses)
	}
	return r, err
}

// addressRequest decodes a request for a single address of a block.
func (o Object) addressRequest(r *model.PoolRequest, spec v1alpha1.AddressPoolRequestSpec) (err error) {
	r.Pod, r.IPAM = spec.Pod, spec.ClaimKind == IPAMClaims().Kind
	if r.Addr, err = o.addr("spec.address", spec.Address); err != nil {
		return err
	}
	if r.CIDR, err = o.prefix("spec.cidr", spec.CIDR); err != nil {
		return err
	}
	if !r.CIDR.Contains(r.Addr) {
		return o.errorf("name the block that it is in", "spec.address %s is not in spec.cidr %s", r.Addr, r.CIDR)
	}
	for field, value := range map[string]string{"spec.claim": r.Claim, "spec.pod": r.Pod} {
		if namespace, name, is := strings.Cut(value, "/"); !is || namespace == "" || name == "" {
			return o.errorf("write namespace/name", "%s %q is no namespace and name", field, value)
		}
	}
	return model.CheckName("spec.pool", r.Pool)
}

// AddressPoolRequestObject returns a new object with the content of the request. The same request has the same name.
func AddressPoolRequestObject(r model.PoolRequest) (Object, error) {
	spec := v1alpha1.AddressPoolRequestSpec{Node: r.Node, Pool: r.Pool, Network: r.Network, Claim: r.Claim}
	var err error
	if spec.Addresses, err = (Object{}).int32("spec.addresses", r.Addresses); err != nil {
		return Object{}, err
	}
	if r.CIDR != (netip.Prefix{}) {
		spec.CIDR = r.CIDR.String()
	}
	name := r.Node + "\x00" + r.Pool + "\x00" + spec.CIDR + "\x00" + r.Network + "\x00" + r.Claim
	if r.Addr.IsValid() {
		spec.Address, spec.Pod = r.Addr.String(), r.Pod
		if r.IPAM {
			spec.ClaimKind = IPAMClaims().Kind
		}
		name += "\x00" + spec.Address + "\x00" + spec.Pod + "\x00" + spec.ClaimKind
	}
	sum := sha256.Sum256([]byte(name))
	return Object{}.withSpec(AddressPoolRequests().Key("", "range-"+hex.EncodeToString(sum[:10])), spec)
}
