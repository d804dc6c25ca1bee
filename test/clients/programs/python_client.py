"""Sends a plant by the client that OpenAPI Generator makes: the call as JSON on stdin, its outcome on stdout."""

import json
import sys

import openapi_client


def create_plant(base_url, token, plant, headers):
    configuration = openapi_client.Configuration(host=base_url)
    configuration.access_token = token
    with openapi_client.ApiClient(configuration) as client:
        client.default_headers.update(headers)
        try:
            stored, status, _ = openapi_client.PlantsApi(client).create_plant_with_http_info(
                openapi_client.NewPlant(**plant)
            )
            return {"status": status, **stored.to_dict()}
        except openapi_client.ApiException as refusal:
            error = openapi_client.Error(**json.loads(refusal.body))
            return {"status": refusal.status, **error.to_dict()}


print(json.dumps(create_plant(**json.load(sys.stdin))))
