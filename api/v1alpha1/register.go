// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the API's name as Kubernetes writes it. Generated clients look for it under this name.
var SchemeGroupVersion = schema.GroupVersion{Group: Group, Version: Version}

// AddToScheme makes the kinds known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &AddressPool{}, &AddressPoolList{}, &AddressBlock{}, &AddressBlockList{},
		&AddressPoolRequest{}, &AddressPoolRequestList{},
		&AddressReservation{}, &AddressReservationList{}, &AddressClaim{}, &AddressClaimList{},
		&NodeEndpoints{}, &NodeEndpointsList{}, &AddressMove{}, &AddressMoveList{},
		&FlowListener{}, &FlowListenerList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
