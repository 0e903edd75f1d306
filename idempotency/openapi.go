package idempotency

import _ "embed" // the fragment

// OpenAPI is a fragment of an OpenAPI 3.1 description, in JSON. It has the header, the problems and
// the answers of operations behind a [Guard]. Refer to its components from your own description.
//
//go:embed openapi.json
var OpenAPI string
