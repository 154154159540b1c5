// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

type poolRequestSpec struct {
	Node      string `json:"node"`
	Pool      string `json:"pool,omitempty"`
	CIDR      string `json:"cidr,omitempty"`
	Addresses int    `json:"addresses,omitempty"`
	Network   string `json:"network,omitempty"`
	Claim     string `json:"claim,omitempty"`
}

// AddressPoolRequest is the object as the model's request.
func (o Object) AddressPoolRequest() (model.PoolRequest, error) {
	var p struct{ Spec poolRequestSpec }
	if err := o.decode(&p); err != nil {
		return model.PoolRequest{}, err
	}
	r := model.PoolRequest{Node: p.Spec.Node, Pool: p.Spec.Pool, Addresses: p.Spec.Addresses, Network: p.Spec.Network, Claim: p.Spec.Claim}
	if r.Pool == "" {
		return r, nil
	}
	if err := model.CheckName("spec.pool", r.Pool); err != nil {
		return r, err
	}
	var err error
	r.CIDR, err = o.prefix("spec.cidr", p.Spec.CIDR)
	if err == nil && r.Addresses <= 0 {
		err = o.fault("write how many addresses of the range are for use", "spec.addresses %d is no number of addresses", r.Addresses)
	}
	return r, err
}

// AddressPoolRequestObject is a new object that says what the request says. The same request has the same name.
func AddressPoolRequestObject(r model.PoolRequest) (Object, error) {
	spec := poolRequestSpec{Node: r.Node, Pool: r.Pool, Addresses: r.Addresses, Network: r.Network, Claim: r.Claim}
	if r.CIDR != (netip.Prefix{}) {
		spec.CIDR = r.CIDR.String()
	}
	sum := sha256.Sum256([]byte(r.Node + "\x00" + r.Pool + "\x00" + spec.CIDR + "\x00" + r.Network + "\x00" + r.Claim))
	return Object{}.withSpec(AddressPoolRequests().Key("", "range-"+hex.EncodeToString(sum[:10])), spec)
}
