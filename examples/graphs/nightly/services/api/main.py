from httpkit import Server
from jsonwalk import loads_strict


def order(request):
    return loads_strict(request.body)


Server(routes={"/order": order}).run()
